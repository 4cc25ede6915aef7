"""PopXL's module paths are importable below ``popxl``, and names of functions stay functions."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import pickle
import pydoc
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from popsr import compat, ops
from popsr.compat._module_paths import MODULE_PATHS, register
from tests_py.support.helpers import run_python


@pytest.fixture(autouse=True, scope="module")
def _installed() -> Iterator[None]:
    compat.install()
    importlib.import_module("popxl.ops")
    importlib.import_module("popxl_addons.ops")
    yield
    compat.uninstall()


@pytest.mark.parametrize("path", MODULE_PATHS)
def test_paths_are_modules_that_import_statements_find(path: str) -> None:
    module = importlib.import_module(path)
    assert isinstance(module, ModuleType)
    assert module.__name__ == path
    spec = importlib.util.find_spec(path)
    assert spec is module.__spec__
    assert spec is not None
    assert spec.name == path
    assert spec.parent == module.__package__ == path.rpartition(".")[0]
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(ImportError, match="cannot import name 'no_such_name'"):
        exec(f"from {path} import no_such_name")


def test_rows_of_the_table_are_needed() -> None:
    """A path that is a file of its own needs no row."""
    assert [path for path in MODULE_PATHS if getattr(sys.modules[path], "__file__", None)] == []


def test_names_of_functions_stay_functions() -> None:
    for path in MODULE_PATHS:
        parent, _, name = path.rpartition(".")
        found = getattr(sys.modules[parent], name)
        of_that_name = name in sys.modules[parent].__all__
        assert inspect.isfunction(found) if of_that_name else found is sys.modules[path], path


def test_statements_that_programs_use() -> None:
    from popxl.ops.add import add, add_
    from popxl.ops.collectives.replicated_all_reduce import replicated_all_reduce
    from popxl.ops.max import max, maximum

    assert (add, add_, max, maximum) == (ops.add, ops.add_, ops.max, ops.maximum)
    assert replicated_all_reduce is ops.collectives.replicated_all_reduce
    names: dict[str, object] = {}
    exec("import popxl.ops.add as f\nimport popxl.ops.argminmax as m\nfrom popxl.ops.exp import *", names)
    assert names["f"] is ops.add  # as in PopXL
    assert names["m"] is sys.modules["popxl.ops.argminmax"]
    assert {name for name in names if not name.startswith("_")} == {"f", "m", "exp", "exp_"}


def test_help_and_pickle_know_where_functions_are() -> None:
    from popxl.ops.add import add

    assert add.__module__ == "popsr.ops.math.elementwise"
    assert pickle.loads(pickle.dumps(add)) is add
    text = pydoc.plain(pydoc.render_doc(sys.modules["popxl.ops.add"]))
    assert "its names are in popsr.ops." in text
    assert "add_(lhs: 'Tensor', rhs: 'Tensor')" in text


FRESH = """
import sys, json
from popsr import compat
compat.install()
{}
print(json.dumps([name for name in sys.modules if name.startswith("popxl.ops.")]))
"""


@pytest.mark.parametrize(
    "statement",
    [
        "import popxl.ops.add",
        "from popxl.ops.collectives.all_reduce import all_reduce",
        "from popxl.transforms.merge_exchange import merge_exchange",
        "import importlib; importlib.import_module('popxl.ops.var_updates.accumulate')",
        "import importlib.util, popsr; assert importlib.util.find_spec('popxl.ops.where')",
        "import importlib.util, popsr; assert importlib.util.find_spec('popxl.ops.collectives.all_reduce')",
    ],
)
def test_a_path_may_be_the_first_import(statement: str) -> None:
    assert "popxl.ops.add" in json.loads(run_python(FRESH.format(statement)))


def test_registering_twice_changes_nothing() -> None:
    module = sys.modules["popxl.ops.add"]
    register("popxl")
    assert sys.modules["popxl.ops.add"] is module
    assert inspect.isfunction(ops.add)


def test_importing_popsr_makes_no_module_without_a_file() -> None:
    run_python(
        "import importlib.machinery, sys, popsr, popsr.addons, popsr.transforms\n"
        "made = [name for name, module in sys.modules.items()\n"
        "        if name.startswith('popsr') and not getattr(module, '__file__', None)]\n"
        "assert made == [], made\n"
    )


def test_a_path_has_no_file_to_be_reloaded() -> None:
    run_python(
        "import importlib, sys, popsr\n"
        "from popsr import compat\n"
        "compat.install()\n"
        "import popxl.ops\n"
        "try:\n"
        "    importlib.reload(sys.modules['popxl.ops.add'])\n"
        "except ImportError:\n"
        "    from popxl.ops.add import add\n"
        "    assert add is popsr.ops.add\n"
    )


def test_unknown_paths_are_not_found() -> None:
    for path in ("popxl.ops.no_such_op", "popxl.ops.collectives.no_such_op", "popxl.no_such_module"):
        with pytest.raises(ModuleNotFoundError, match="no_such"):
            importlib.import_module(path)
    assert not hasattr(ops, "no_such_op")
