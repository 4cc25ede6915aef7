"""PopXL's module paths are importable, and names of functions stay functions."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import pickle
import pydoc
import sys
from types import ModuleType

import pytest

import popsr
from popsr import ops
from popsr._module_paths import MODULE_PATHS
from tests_py.support.helpers import run_python

PATHS = [f"popsr.{path}" for path in MODULE_PATHS]


@pytest.mark.parametrize("path", PATHS)
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
    assert [path for path in PATHS if getattr(sys.modules[path], "__file__", None)] == []


def test_names_of_functions_stay_functions() -> None:
    for path in PATHS:
        parent, _, name = path.rpartition(".")
        found = getattr(sys.modules[parent], name)
        of_that_name = name in sys.modules[parent].__all__
        assert inspect.isfunction(found) if of_that_name else found is sys.modules[path], path


def test_statements_that_programs_use() -> None:
    from popsr.ops.add import add, add_  # type: ignore[import-not-found]
    from popsr.ops.collectives.replicated_all_reduce import replicated_all_reduce  # type: ignore[import-not-found]
    from popsr.ops.max import max, maximum  # type: ignore[import-not-found]

    assert (add, add_, max, maximum) == (ops.add, ops.add_, ops.max, ops.maximum)
    assert replicated_all_reduce is ops.collectives.replicated_all_reduce
    names: dict[str, object] = {}
    exec("import popsr.ops.add as f\nimport popsr.ops.argminmax as m\nfrom popsr.ops.exp import *", names)
    assert names["f"] is ops.add  # as in PopXL
    assert names["m"] is sys.modules["popsr.ops.argminmax"]
    assert {name for name in names if not name.startswith("_")} == {"f", "m", "exp", "exp_"}


def test_help_and_pickle_know_where_functions_are() -> None:
    from popsr.ops.add import add

    assert add.__module__ == "popsr.ops.elementwise"
    assert pickle.loads(pickle.dumps(add)) is add
    text = pydoc.plain(pydoc.render_doc(sys.modules["popsr.ops.add"]))
    assert "its names are in popsr.ops." in text
    assert "add_(lhs: 'Tensor', rhs: 'Tensor')" in text


FRESH = """
import sys, json
{}
print(json.dumps([name for name in sys.modules if name.startswith("popsr.ops.")]))
"""


@pytest.mark.parametrize(
    "statement",
    [
        "import popsr.ops.add",
        "from popsr.ops.collectives.all_reduce import all_reduce",
        "from popsr.transforms.merge_exchange import merge_exchange",
        "import importlib; importlib.import_module('popsr.ops.var_updates.accumulate')",
        "import importlib.util, popsr; assert importlib.util.find_spec('popsr.ops.where')",
        "import importlib.util, popsr; assert importlib.util.find_spec('popsr.ops.collectives.all_reduce')",
    ],
)
def test_a_path_may_be_the_first_import(statement: str) -> None:
    assert "popsr.ops.add" in json.loads(run_python(FRESH.format(statement)))


def test_registering_twice_changes_nothing() -> None:
    module = sys.modules["popsr.ops.add"]
    popsr._module_paths.register("ops")
    assert sys.modules["popsr.ops.add"] is module
    assert inspect.isfunction(ops.add)


def test_a_path_has_no_file_to_be_reloaded() -> None:
    run_python(
        "import importlib, sys, popsr\n"
        "try:\n"
        "    importlib.reload(sys.modules['popsr.ops.add'])\n"
        "except ModuleNotFoundError:\n"
        "    from popsr.ops.add import add\n"
        "    assert add is popsr.ops.add\n"
    )


def test_unknown_paths_are_not_found() -> None:
    for path in ("popsr.ops.no_such_op", "popsr.ops.collectives.no_such_op", "popsr.no_such_module"):
        with pytest.raises(ModuleNotFoundError, match="no_such"):
            importlib.import_module(path)
    assert not hasattr(popsr.ops, "no_such_op")
