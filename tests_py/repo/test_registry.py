"""One registry: an op is listed once, by its OpDef; tables, checks and random programs follow."""

from __future__ import annotations

import copy
import functools
import inspect
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import popsr
from popsr import __main__ as command
from popsr import _core, ops
from popsr._tools.show.ops_table import op_rows
from popsr.addons import performance_utils
from popsr.compat._objects import op as _base_of_op_classes  # noqa: F401 - the classes are made of one that is there
from popsr.compat._objects import op_classes
from popsr.errors import ArgumentTypeError
from tests_py import ROOT
from tests_py.ops.rows.table import OPS
from tests_py.ops.test_gradient_table import EVERY, ZEROS, gradient_table
from tests_py.ops.test_ops import check_signature
from tests_py.support.helpers import PUBLIC, SCHEMAS, elementwise, over_axes, python_op

FOLDER = Path(__file__).resolve().parents[2] / "cpp" / "popsr" / "ops"
FAMILIES = re.findall(r"^POPSR_ROW\((\w+)\)", (FOLDER / "families.def").read_text(), re.MULTILINE)

# Families


@cache
def _folder(family: str) -> str:
    """``nn`` of ``cpp/popsr/ops/nn/pool/pool.cpp``."""
    pattern = re.compile(rf"^std::vector<OpDef> {family}_ops\(\) \{{", re.MULTILINE)
    (file,) = (file for file in FOLDER.rglob("*.cpp") if pattern.search(file.read_text()))
    return file.relative_to(FOLDER).parts[0]


@pytest.mark.parametrize("op", PUBLIC)
def test_family_and_python_module_have_one_name(op: str) -> None:
    """And lie in folders of one name, but for the facades that users import."""
    module = inspect.getmodule(inspect.unwrap(python_op(op)))
    assert module is not None
    family = SCHEMAS[op]["family"]
    folder = "" if family in ("collectives", "var_updates") else f"{_folder(family)}."
    assert module.__name__ == f"popsr.ops.{folder}{family}"


@pytest.mark.parametrize("family", FAMILIES)
def test_family_and_source_file_have_one_name(family: str) -> None:
    defining = [
        file
        for file in FOLDER.rglob("*.cpp")
        if re.search(rf"^std::vector<OpDef> {family}_ops\(\) \{{", file.read_text(), re.MULTILINE)
    ]
    assert [file.stem for file in defining] == [family]
    text = "".join(file.read_text() for file in (*defining, defining[0].with_suffix(".h")) if file.is_file())
    members = [name for name, schema in SCHEMAS.items() if schema["family"] == family]
    assert members
    assert [name for name in members if f'"{name}"' not in text] == []


def test_every_family_is_listed_once() -> None:
    assert sorted(FAMILIES) == sorted({schema["family"] for schema in SCHEMAS.values()})
    for family in FAMILIES:
        public = any(s["family"] == family for s in SCHEMAS.values() if not s["internal"])
        found = [*(ROOT / "python/popsr/ops").rglob(f"{family}.py")]
        assert public == any("_exact" not in file.parts for file in found), family


def test_a_family_is_one_function() -> None:
    """None calls another's: ``registry.cpp`` has all of them in one list."""
    for file in FOLDER.rglob("*.cpp"):
        text = file.read_text()
        called = [family for family in FAMILIES if re.search(rf"(?<!> )\b{family}_ops\b", text)]
        assert called == [], file


# A registry with ops more


def _renamed(op: str, name: str) -> dict[str, Any]:
    return {**copy.deepcopy(SCHEMAS[op]), "name": name}


@pytest.fixture
def schemas(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A copy of the registry's schemas with four ops more, which ``_core.op_schemas`` returns."""
    added = [("erf", "erfc"), ("add", "plus"), ("var", "spread"), ("floor", "nearest")]
    longer: list[Any] = [*_core.op_schemas(), *(_renamed(like, name) for like, name in added)]
    monkeypatch.setattr(_core, "op_schemas", lambda: longer)
    for name in ("_stems", "_made"):
        cached = getattr(op_classes, name)
        monkeypatch.setattr(op_classes, name, functools.cache(cached.__wrapped__))
    return longer


def test_documentation_has_the_ops(schemas: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row[0]: row for row in op_rows()}
    assert rows["erfc"] == ("erfc", "floats", "yes", "meet of inputs", "")
    assert rows["plus"][1:4] == rows["add"][1:4]
    assert rows["nearest"][2] == "zeros"
    assert command.main(["ops", "--markdown"]) == 0
    assert "| `spread` |" in capsys.readouterr().out


def test_gradient_table_has_the_ops(schemas: list[dict[str, Any]]) -> None:
    table = gradient_table(schemas)
    assert table["erfc"] == table["plus"] == table["spread"] == EVERY
    assert table["nearest"] == ZEROS


def test_tables_of_tests_have_the_ops(schemas: list[dict[str, Any]]) -> None:
    assert {"erfc", "nearest"} <= set(elementwise(1, schemas))
    assert "plus" in elementwise(2, schemas)
    assert "spread" in over_axes(schemas)


def test_flop_counts_know_the_ops(schemas: list[dict[str, Any]]) -> None:
    """The count itself is the core's: see tests_cpp/ir/test_registry.cpp."""
    with popsr.Ir().create_empty_graph() as graph:
        ops.exp(popsr.graph_input((3,), popsr.float32))
    with pytest.raises(ArgumentTypeError, match=r"expected one of accumulate_, add, .*, plus$"):
        performance_utils.elementwise_binary_flops(graph.ops[0])


def test_classes_of_popart_have_the_ops(schemas: list[dict[str, Any]]) -> None:
    assert op_classes.names_of("erfc") == ("ErfcOp",)
    assert op_classes.class_of("erfc").kinds == {"erfc"}


def test_signature_is_checked_by_the_schema(schemas: list[dict[str, Any]]) -> None:
    def spread(
        t: popsr.Tensor, axis: Any = None, keepdims: bool = False, correction: float = 0.0
    ) -> popsr.Tensor:
        """Documented."""
        raise NotImplementedError

    def without_axis(t: popsr.Tensor, keepdims: bool = False, correction: float = 0.0) -> popsr.Tensor:
        """Documented."""
        raise NotImplementedError

    schema = next(each for each in schemas if each["name"] == "spread")
    check_signature(spread, schema, OPS["var"])
    with pytest.raises(AssertionError):
        check_signature(without_axis, schema, OPS["var"])
