"""Results that equal an operand are tensors of their own: each has its gradient, as it has its id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from popsr.compat import popart
from tests_py.compat.builder.programs import run_once

pytest.importorskip("onnx")

SHAPE = [1, 2, 3]
SUM = popart.ReductionType.Sum
Make = Callable[[popart.Builder, str], Any]


def _ints(b: popart.Builder, values: list[int]) -> str:
    return str(b.aiOnnx.constant(np.array(values, np.int64)))


def _called(b: popart.Builder, p: str) -> Any:
    inner = b.createSubgraphBuilder()
    inner.addOutputTensor(inner.aiOnnx.identity([inner.addInputTensor("FLOAT", SHAPE)]))
    return b.aiGraphcore.call([p], 1, inner)[0]


def _branch(b: popart.Builder, p: str) -> Any:
    yes, no = b.createSubgraphBuilder(), b.createSubgraphBuilder()
    yes.addOutputTensor(yes.aiOnnx.identity([yes.addInputTensorFromParentGraph(p)]))
    no.addOutputTensor(no.aiOnnx.neg([no.addInputTensorFromParentGraph(p)]))
    return b.aiOnnx.logical_if([b.aiOnnx.constant(np.array(True))], 1, no, yes)[0]


OPS: dict[str, Make] = {
    "identity": lambda b, p: b.aiOnnx.identity([p]),
    "identity of identity": lambda b, p: b.aiOnnx.identity([b.aiOnnx.identity([p])]),
    "nop": lambda b, p: b.aiGraphcore.nop([p]),
    "tensorremap": lambda b, p: b.aiGraphcore.tensorremap([p]),
    "printtensor": lambda b, p: b.aiGraphcore.printtensor([p]),
    "dropout of none": lambda b, p: b.aiOnnx.dropout([p], 1, 0.0)[0],
    "cast": lambda b, p: b.aiOnnx.cast([p], "FLOAT"),
    "reshape": lambda b, p: b.aiOnnx.reshape([p, _ints(b, SHAPE)]),
    "graphcore.reshape": lambda b, p: b.aiGraphcore.reshape([p], SHAPE),
    "flatten": lambda b, p: b.aiOnnx.reshape([b.aiOnnx.flatten([p], 0), _ints(b, SHAPE)]),
    "squeeze of none": lambda b, p: b.aiOnnx.unsqueeze([b.aiOnnx.squeeze([p], [0])], [0]),
    "unsqueeze": lambda b, p: b.aiOnnx.unsqueeze([p], []),
    "transpose": lambda b, p: b.aiOnnx.transpose([p], [0, 1, 2]),
    "expand": lambda b, p: b.aiOnnx.expand([p, _ints(b, SHAPE)]),
    "tile": lambda b, p: b.aiOnnx.tile([p, _ints(b, [1, 1, 1])]),
    "pad": lambda b, p: b.aiOnnx.pad([p], [0] * 6),
    "concat": lambda b, p: b.aiOnnx.concat([p], 0),
    "split": lambda b, p: b.aiOnnx.split([p], 1)[0],
    "slice": lambda b, p: b.aiOnnx.slice([p, _ints(b, [0, 0, 0]), _ints(b, SHAPE)]),
    "graphcore.slice": lambda b, p: b.aiGraphcore.slice([p], SHAPE, [0, 0, 0]),
    "reverse": lambda b, p: b.aiGraphcore.reverse([p], []),
    "subsample": lambda b, p: b.aiGraphcore.subsample([p], [1, 1, 1]),
    "reducesum": lambda b, p: b.aiOnnx.reducesum([p], axes=[]),
    "reducemax": lambda b, p: b.aiOnnx.reducemax([p], axes=[0]),
    "sum": lambda b, p: b.aiOnnx.sum([p]),
    "max": lambda b, p: b.aiOnnx.max([p]),
    "min": lambda b, p: b.aiOnnx.min([p]),
    "mean": lambda b, p: b.aiOnnx.mean([p]),
    "clip": lambda b, p: b.aiOnnx.clip([p]),
    "upsample": lambda b, p: b.aiOnnxOpset9.upsample([p, b.aiOnnxOpset9.constant(np.ones(3, np.float32))]),
    "scale": lambda b, p: b.aiGraphcore.scale([p], 1.0),
    "identityloss": lambda b, p: b.aiGraphcore.identityloss([p], popart.ReductionType.NoReduction),
    "allreduce of none": lambda b, p: b.aiGraphcore.replicatedallreduce([p], popart.CollectiveOperator.Local),
    "call": _called,
    "if": _branch,
}


@pytest.mark.parametrize("name", OPS)
def test_a_value_and_its_copy_have_two_gradients(name: str) -> None:
    builder = popart.Builder(opsets={"ai.onnx": 9} if name == "upsample" else None)
    x = builder.addInputTensor("FLOAT", SHAPE, "x")
    w = builder.addInitializedInputTensor(np.full(SHAPE, 2, np.float32), "w")
    p = builder.aiOnnx.mul([x, w])
    y = OPS[name](builder, p)
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.add([p, builder.aiOnnx.add([y, y])])], SUM)
    ids = {
        key: popart.reservedGradientPrefix() + id_ for key, id_ in {"p": p, "y": y, "w": w, "x": x}.items()
    }
    given = np.arange(6, dtype=np.float32).reshape(SHAPE)
    anchors = run_once(builder.getModelProto(), [*ids.values(), y], {x: given}, loss)
    wanted: dict[str, Any] = {"p": 3, "y": 2, "w": 3 * given, "x": 6}
    for key, value in wanted.items():
        np.testing.assert_array_equal(anchors[ids[key]], np.zeros(SHAPE) + value, err_msg=key)
    np.testing.assert_array_equal(anchors[y], 2 * given)


def test_gradients_of_values_that_are_known_when_the_model_is_read() -> None:
    """Constants, and what follows from them; two of them with equal elements are two tensors."""
    builder = popart.Builder()
    w = builder.addInitializedInputTensor(np.array([1, 2], np.float32), "w")
    one, other = (builder.aiOnnx.constant(np.array([3, 4], np.float32)) for _ in range(2))
    both = builder.aiOnnx.add([one, other])
    total = builder.aiOnnx.add([builder.aiOnnx.mul([w, both]), one])
    loss = builder.aiGraphcore.identityloss([total], SUM)
    ids = [popart.reservedGradientPrefix() + id_ for id_ in (one, other, both, w)]
    anchors = run_once(builder.getModelProto(), ids, {}, loss)
    assert [anchors[id_].tolist() for id_ in ids] == [[2, 3], [1, 2], [1, 2], [6, 8]]
