"""Loops whose number of passes depends on data, beside Python's loops; and those that cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from popsr.errors import OutOfRangeError, UnsupportedOpsError

pytest.importorskip("onnx")

from onnx import TensorProto, helper

from popsr.bridge.onnx import load
from popsr.bridge.onnx.ops.control import _while
from tests_py.bridge.onnx.net import Net

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
X = np.array([1.0, 0.5], np.float32)


def loop(nodes: str, *, count: Any, condition: Any = None, rows: bool = False) -> Any:
    """A loop that carries ``v``; ``count`` and ``condition`` are an array, or None, or "input"."""
    net = Net()
    net.input("x", (2,))
    net.input("limit", ())
    names = []
    for name, value, kind in (("n", count, INT), ("on", condition, BOOL)):
        if isinstance(value, str):
            names.append(net.input(name, (), kind))
        else:
            names.append("" if value is None else net.constant(np.asarray(value)))
    kinds: dict[str, Any] = {"i": (INT, []), "c": (BOOL, []), "v": (FLOAT, None)}
    inputs = [helper.make_tensor_value_info(name, *kind) for name, kind in kinds.items()]
    outputs = [helper.make_empty_tensor_value_info(name) for name in ("d", "w", *(("row",) if rows else ()))]
    made = [_node(line) for line in nodes.split("; ")]
    body = helper.make_graph(made, "body", inputs, outputs)
    net.output(net.add("Loop", [*names, "x"], "loop", outputs=1 + rows, body=body))
    return net.model()


def _node(line: str) -> Any:
    """Of ``result = OpType operand operand``."""
    result, _, rest = line.partition(" = ")
    op_type, *operands = rest.split()
    attributes: dict[str, Any] = {"axis": 0} if op_type == "Concat" else {}
    return helper.make_node(op_type, operands, [result], result, **attributes)


DOUBLE = "w = Add v v; d = Identity c"
UNTIL = "w = Add v v; m = ReduceMax w; k = Squeeze m; d = Less k limit"


def doubled(count: int | None, on: bool = True, limit: float | None = None) -> np.ndarray[Any, Any]:
    """Results of the loops: ``x`` doubled while the condition holds, at most so many times."""
    v, number = X, 0
    while on and (count is None or number < count):
        v, number = v + v, number + 1
        on = limit is None or bool(v.max() < limit)
    return v


class Row(NamedTuple):
    proto: Any
    feeds: dict[str, Any]
    expected: np.ndarray[Any, Any]


ROWS = {
    "condition, no trip count": Row(loop(UNTIL, count=None), {"limit": 100.0}, doubled(None, limit=100)),
    "condition before the trip count": Row(loop(UNTIL, count=50), {"limit": 9.0}, doubled(50, limit=9)),
    "trip count before the condition": Row(loop(UNTIL, count=3), {"limit": 100.0}, doubled(3, limit=100)),
    "largest trip count": Row(loop(UNTIL, count=(1 << 63) - 1), {"limit": 9.0}, doubled(None, limit=9)),
    "no pass by the trip count": Row(loop(UNTIL, count=0), {"limit": 9.0}, X),
    "trip count of the run": Row(loop(DOUBLE, count="input"), {"n": 7}, doubled(7)),
    "trip count of the run is 0": Row(loop(DOUBLE, count="input"), {"n": 0}, X),
    "trip count of the run is negative": Row(loop(DOUBLE, count="input"), {"n": -3}, X),
    "condition of the run": Row(loop(DOUBLE, count=4, condition="input"), {"on": True}, doubled(4)),
    "condition of the run is false": Row(loop(DOUBLE, count=4, condition="input"), {"on": False}, X),
    "both of the run": Row(
        loop(UNTIL, count="input", condition="input"),
        {"n": 9, "on": True, "limit": 20.0},
        doubled(9, limit=20),
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_loops_end_by_data(name: str) -> None:
    row = ROWS[name]
    model = load(row.proto)
    assert "while_loop" in {op.kind for op in model.graph.ops}
    given = {"x": X, "limit": 0.0, **row.feeds}
    feeds = {key: np.asarray(given[key], t.dtype.as_numpy()) for key, t in model.inputs.items()}
    np.testing.assert_array_equal(model.run(feeds)["loop.out"], row.expected)


def test_each_replica_ends_by_itself() -> None:
    model = load(ROWS["condition, no trip count"].proto, replicas=2)
    feeds = {"x": np.stack([X, X]), "limit": np.array([10.0, 100.0], np.float32)}
    expected = [doubled(None, limit=10), doubled(None, limit=100)]
    np.testing.assert_array_equal(model.run(feeds)["loop.out"], expected)


def test_a_condition_that_is_known_needs_no_while_loop() -> None:
    proto = loop("w = Add v v; k = Constant; d = Less i k", count=None)
    proto.graph.node[-1].attribute[0].g.node[1].attribute.append(helper.make_attribute("value_int", 3))
    model = load(proto)
    assert {op.kind for op in model.graph.ops} == {"add"}


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "rows of passes that a condition ends": (
        lambda: loop(UNTIL + "; row = Identity v", count=9, rows=True),
        "Loop (results of each pass, whose number depends on data) at loop (Loop):2",
    ),
    "rows of passes that the run counts": (
        lambda: loop(DOUBLE + "; row = Identity v", count="input", rows=True),
        "Loop (its trip count is not known when the model is read: give values of 'n') at loop (Loop):1",
    ),
    "a value that grows": (
        lambda: loop("w = Concat v v; m = ReduceMax w; k = Squeeze m; d = Less k limit", count=9),
        "Loop (a value that changes its shape from pass to pass) at loop (Loop):2",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    make, text = REFUSED[name]
    with pytest.raises(UnsupportedOpsError) as found:
        load(make())
    assert text in str(found.value)


def test_a_loop_that_does_not_end_is_refused_by_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_while, "MAX_PASSES", 100)
    model = load(loop("w = Identity v; m = ReduceMax w; k = Squeeze m; d = Less k limit", count=None))
    model.run({"x": X, "limit": np.float32(0)})
    with pytest.raises(OutOfRangeError, match=r"at loop \(Loop\):1, got 100 iterations"):
        model.run({"x": X, "limit": np.float32(9)})
