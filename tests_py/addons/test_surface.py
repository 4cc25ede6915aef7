"""popsr.addons has the modules, names and signatures of popxl_addons, as the table in surface.txt lists them.

Parameters have its names, order, kinds and defaults; popsr adds parameters that are given by keyword only.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator

import numpy as np
import pytest

import popsr.addons
import popsr.fp8_utils
from popsr import compat
from tests_py.support.helpers import run_python
from tests_py.support.surface import Table, problems

TABLE = Table("addons/surface.txt")
MODULES = TABLE.modules
BOTH_NAMES = ["popxl_addons", "popxl_addons.fp8_utils", *MODULES]
# Functions that hide the modules of the same names in their packages.
HIDDEN = {
    "popxl_addons": ("autodiff", "seed_variable", "cross_entropy"),
    "popxl_addons.transforms": ("autodiff",),
    "popxl_addons.ops": ("cross_entropy",),
}


def _popsr(name: str) -> str:
    return re.sub(r"^popxl_addons\b", "popsr.addons", name)


@pytest.fixture(autouse=True, scope="module")
def _installed() -> Iterator[None]:
    compat.install()
    yield
    compat.uninstall()


def test_the_table_is_complete() -> None:
    """Figures of the reference: 98 exports and 51 modules."""
    assert {name: len(names) for name, names in TABLE.exports.items()} == {"popxl_addons": 98}
    assert len(MODULES) == 51


@pytest.mark.parametrize("name", TABLE.exports["popxl_addons"])
def test_names_of_the_package_are_there(name: str) -> None:
    assert hasattr(popsr.addons, name)


@pytest.mark.parametrize("module", MODULES)
def test_names_and_signatures(module: str) -> None:
    wrong = problems(importlib.import_module(module), MODULES[module])
    assert not wrong, "\n".join(wrong)


def test_float8_helpers_are_those_of_popsr() -> None:
    """As attribute of the package and as module of its own, whose values ``tests_py/ops/float8`` holds."""
    module = importlib.import_module("popxl_addons.fp8_utils")
    assert popsr.addons.fp8_utils is popsr.fp8_utils
    for name in popsr.fp8_utils.__all__:
        assert getattr(module, name) is getattr(popsr.fp8_utils, name)
    data = np.array([0.75, 0.25, 240, 300], np.float32)
    assert module.host_pow2scale_cast_to_fp8(data).view(np.uint8).tolist() == [0x3C, 0x30, 0x7F, 0x80]
    narrow = module.host_pow2scale_cast_to_fp8(data, popsr.float8_152, 1)
    assert module.host_pow2scale_cast_from_fp8(narrow, log2_scale=-1).tolist() == [0.75, 0.25, 256, 320]


@pytest.mark.parametrize("package", HIDDEN)
def test_functions_hide_their_modules(package: str) -> None:
    found = importlib.import_module(_popsr(package))
    assert {name: inspect.isfunction(getattr(found, name)) for name in HIDDEN[package]} == dict.fromkeys(
        HIDDEN[package], True
    )


def test_packages_are_packages() -> None:
    """Programs say ``addons.ops.cross_entropy_with_grad`` and ``addons.transforms.autodiff_with_accumulation``."""
    for name, member in (("ops", "cross_entropy_with_grad"), ("transforms", "autodiff_with_accumulation")):
        package = getattr(popsr.addons, name)
        assert package is sys.modules[f"popsr.addons.{name}"]
        assert inspect.isfunction(getattr(package, member))


@pytest.fixture(scope="module")
def aliases() -> dict[str, bool]:
    """For each path, imported as programs do: true if it is popsr's module. In a fresh process."""
    code = f"""
import importlib, json
import popsr.compat
from popsr.compat._finder import popsr_name
from popsr.compat._module_paths import MODULE_PATHS
popsr.compat.install()
found = {{}}
for path in {BOTH_NAMES!r}:
    try:
        module = importlib.import_module(path)
    except ImportError:
        found[path] = False
    else:
        found[path] = path in MODULE_PATHS or module is importlib.import_module(popsr_name(path))
print(json.dumps(found))
"""
    found: dict[str, bool] = json.loads(run_python(code))
    return found


@pytest.mark.parametrize("module", BOTH_NAMES)
def test_modules_have_both_names(module: str, aliases: dict[str, bool]) -> None:
    assert aliases[module]


def test_imports_of_programs_find_the_functions() -> None:
    code = """
import inspect
import popsr.compat
popsr.compat.install()
import popxl
import popxl_addons as addons
from popxl_addons.transforms.autodiff import autodiff
from popxl_addons.ops.cross_entropy import cross_entropy_with_grad
from popxl_addons.seed_variable import seed_variable
from popxl_addons.array_munging import tensor_parallel_output
assert addons.autodiff is addons.transforms.autodiff is autodiff
assert addons.ops.cross_entropy_with_grad is addons.cross_entropy_with_grad is cross_entropy_with_grad
assert addons.seed_variable is seed_variable
assert issubclass(addons.Module, popxl.Module)
print(inspect.isfunction(autodiff))
"""
    assert run_python(code) == "True\n"
