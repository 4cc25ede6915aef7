"""``popart._internal.ir``: classes of ops answer from the registry by one rule."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import _core, ops
from popsr.addons.testing_utils import contains_op_of_type, num_op_of_type, ops_of_type
from popsr.compat import install, uninstall
from popsr.compat.popart._internal import ir as _ir
from popsr.errors import ArgumentTypeError, AttributeAccessError
from tests_py.support.unchecked import unchecked

KINDS = sorted(schema["name"] for schema in _core.op_schemas())
NAMESPACES = (_ir.op, _ir.op.collectives, _ir.op.exchange)
CLASSES = {
    f"{space.__name__}.{name}": getattr(space, name)
    for space in NAMESPACES
    for name in space.__all__
    if inspect.isclass(getattr(space, name)) and (space, name) != (_ir.op, "AllReduceOp")
}  # AllReduceOp is at both places


@pytest.mark.parametrize("kind", KINDS)
def test_each_registered_op_has_one_class(kind: str) -> None:
    found = {cls for cls in CLASSES.values() if kind in cls.kinds}
    assert len(found) == 1
    (cls,) = found
    assert issubclass(cls, _ir.Op)
    assert re.fullmatch(r"[A-Z][A-Za-z0-9]*Op", cls.__name__)


def test_each_class_is_of_registered_ops() -> None:
    assert len(CLASSES) > len(KINDS) / 2
    for path, cls in CLASSES.items():
        assert cls.kinds, path
        assert cls.kinds <= set(KINDS), path
    paths = [path for path, cls in CLASSES.items() if path.endswith(f".{cls.__name__}")]
    assert len(paths) == len(set(CLASSES.values()))  # each class is at one place under its own name


def test_further_places_and_names() -> None:
    op: Any = _ir.op  # its classes are made of a table
    assert op.AllReduceOp is op.collectives.AllReduceOp
    assert op.BatchNormOp is op.BatchNormInferenceOp
    assert op.IsInf is op.IsInfOp
    assert op.IsNaN is op.IsNaNOp
    assert op.SqueezeOp.kinds == {"squeeze"}
    names = [name for name in op.__all__ if name.startswith("Dynamic")]
    assert names == op.dynamic.__all__
    assert all(getattr(op.dynamic, name) is getattr(op, name) for name in names)


def test_a_name_stands_at_one_place() -> None:
    names = [path.rpartition(".")[2] for path in CLASSES]
    assert len(names) == len(set(names))


# Classes that published programs and tests name, and the ops that they are of.
PUBLISHED = {
    "AddOp": "add",
    "AddLhsInplaceOp": "add_",
    "AddRhsInplaceOp": "add_",
    "MulOp": "mul",
    "AdamUpdaterOp": "adam_updater adamax_updater lamb_updater",
    "AdamVarUpdateOp": "adam_var_update",
    "ReshapeOp": "reshape flatten",
    "ReshapeInplaceOp": "reshape_ flatten_",
    "SubtractOp": "sub",
    "DivOp": "div",
    "AccumulateOp": "accumulate_ accumulate_mean_ accumulate_square_ accumulate_moving_average_ "
    "accumulate_moving_average_square_",
    "AccumulatorScaleOp": "accumulator_scale_ accumulator_zero_",
    "MatMulOp": "matmul",
    "CallOp": "call",
    "LoopOp": "repeat",
    "IfOp": "conditional",
    "InitOp": "init",
    "ReluInplaceOp": "relu_",
    "ReduceSumOp": "sum",
    "MaxOp": "maximum",
    "GroupNormOp": "group_norm layer_norm",
    "IncrementModInplaceOp": "increment_mod_",
    "CopyVarUpdateOp": "copy_var_update_",
    "collectives.ReplicatedAllReduceOp": "replicated_all_reduce",
    "collectives.ReplicatedAllReduceInplaceOp": "replicated_all_reduce_",
    "collectives.ReplicatedReduceScatterOp": "replicated_reduce_scatter",
    "collectives.ReplicatedAllGatherOp": "replicated_all_gather",
    "collectives.MultiReplicatedAllReduceOp": "multi_replicated_all_reduce",
    "exchange.HostLoadOp": "host_load",
    "exchange.HostStoreOp": "host_store",
    "exchange.RemoteLoadOp": "remote_load",
    "exchange.RemoteStoreOp": "remote_store",
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_names(name: str) -> None:
    assert CLASSES[f"{_ir.op.__name__}.{name}"].kinds == set(PUBLISHED[name].split())


@pytest.fixture
def graph() -> popsr.Graph:
    ir = popsr.Ir()
    with ir.main_graph:
        x = popsr.variable(np.ones((2, 2), np.float32), name="x")
        ops.relu_(x @ x @ (x - x))
    return ir.main_graph


def test_ops_are_told_by_class(graph: popsr.Graph) -> None:
    classes: list[Any] = [
        unchecked(_ir.op).MatMulOp,
        unchecked(_ir.op).SubtractOp,
        unchecked(_ir.op).MatMulOp,
        unchecked(_ir.op).ReluInplaceOp,
    ]
    for found in (graph.ops, unchecked(graph)._pb_graph.getOps()):
        for cls in {*classes, unchecked(_ir.op).AddOp}:
            assert [isinstance(op, cls) for op in found] == [each is cls for each in classes]
        assert all(isinstance(op, _ir.Op) for op in found)
    assert [type(op) for op in unchecked(graph)._pb_graph.getOps()] == classes
    assert not isinstance(3, _ir.Op)
    assert not isinstance(graph, unchecked(_ir.op).AddOp)


COUNTS: dict[Any, int] = {
    "matmul": 2,
    "MatMul": 2,
    unchecked(_ir.op).MatMulOp: 2,
    "sub": 1,
    "Sub": 1,
    unchecked(_ir.op).SubtractOp: 1,
    unchecked(_ir.op).AddOp: 0,
    "add": 0,
    _ir.Op: 4,
}


@pytest.mark.parametrize("op_type", COUNTS, ids=str)
def test_ops_are_counted_by_class_or_name(op_type: Any, graph: popsr.Graph) -> None:
    expected = COUNTS[op_type]
    assert (
        ops_of_type(graph.ops, op_type)
        == ops_of_type(unchecked(graph)._pb_graph.getOps(), op_type)
        == expected
    )
    for each in (graph, unchecked(graph)._pb_graph):
        assert num_op_of_type(op_type, each) == expected
        assert contains_op_of_type(op_type, each) is bool(expected)


def test_popxls_tests_give_type_and_class(graph: popsr.Graph) -> None:
    assert contains_op_of_type("MatMul", unchecked(_ir.op).MatMulOp, graph)
    assert num_op_of_type("MatMul", unchecked(_ir.op).MatMulOp, unchecked(graph)._pb_graph) == 2
    assert not contains_op_of_type("MatMul", unchecked(_ir.op).AddOp, graph)


def test_counting_refuses_other_values(graph: popsr.Graph) -> None:
    for call in (
        lambda: num_op_of_type(3, graph),  # type: ignore[arg-type]
        lambda: num_op_of_type(int, graph),
        lambda: contains_op_of_type("add", 3),  # type: ignore[arg-type]
        lambda: contains_op_of_type("add", unchecked(_ir.op).AddOp),
        lambda: ops_of_type([graph], "add"),  # type: ignore[list-item]
    ):
        with pytest.raises(ArgumentTypeError, match="_of_type: "):
            call()


# The module


@pytest.fixture
def installed() -> Iterator[None]:
    install()
    yield
    uninstall()


IMPORTS = """
import popart
import popart._internal.ir as _ir
from popart._internal import ir
from popart._internal.ir import op, patterns
from popart._internal.ir.op import collectives
from popart._internal.ir.op.exchange import HostLoadOp
import popart._internal.ir.op.exchange as exchange
assert _ir is ir and _ir.op is op and op.collectives is collectives and exchange.HostLoadOp is HostLoadOp
assert popart._internal.ir is _ir
"""


@pytest.mark.usefixtures("installed")
def test_programs_import_it_in_each_way() -> None:
    exec(compile(IMPORTS, "program", "exec"), {})


def test_names_of_the_module() -> None:
    assert [name for name in _ir.__all__ if getattr(_ir, name, None) is None] == []
    identifier = _ir.OperatorIdentifier("ai.graphcore", "Add", 1, 2, 1)
    assert (identifier.domain, identifier.type, identifier.version, identifier.numInputs) == (
        "ai.graphcore",
        "Add",
        1,
        2,
    )
    assert identifier == _ir.OperatorIdentifier("ai.graphcore", "Add", 1)
    assert _ir.DebugContext("x").getPathName() == "x"
    assert isinstance(_ir.Ir().getMainGraph(), _ir.Graph)
    patterns = _ir.patterns.Patterns(_ir.patterns.PatternsLevel.NoPatterns)
    assert patterns.enablePattern("InPlace", True).isPatternEnabled("InPlace")
    patterns.InPlace = False
    assert not patterns.isPatternEnabled("InPlace")


@pytest.mark.parametrize(
    ("module", "name", "expected"),
    [
        (_ir, "OperatorIdentifer", "'OperatorIdentifier'"),
        (_ir.op, "SubOp", "'Su"),
        (_ir.op.collectives, "ReplicatedAllReduce", "'ReplicatedAllReduceOp'"),
        (_ir.op.exchange, "HostLoad", "'HostLoadOp'"),
        (_ir.patterns, "PatternLevel", "'PatternsLevel'"),
        (_ir.transforms, "Prunes", "'Prune'"),
    ],
)
def test_unknown_names_have_the_nearest_one(module: Any, name: str, expected: str) -> None:
    with pytest.raises(AttributeAccessError, match=f"no attribute '{name}', expected .*{expected}"):
        getattr(module, name)
