"""Weights that the loss depends on train, through whatever ops; a session refuses ops that pass no gradient on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from popsr import errors
from popsr.compat import popart
from tests_py.compat.builder.programs import run_once

pytest.importorskip("onnx")

SUM = popart.ReductionType.Sum
Make = Callable[[popart.Builder, str, str], str]


def _loop(b: popart.Builder, x: str, w: str) -> str:
    """x * w**4, by passes that read w from the graph around them."""
    body = b.createSubgraphBuilder()
    body.addInputTensor("INT64", [])
    keep, value = body.addInputTensor("BOOL", []), body.addInputTensor("FLOAT", [2])
    body.addOutputTensor(body.aiOnnx.identity([keep]))
    body.addOutputTensor(body.aiOnnx.mul([value, body.addInputTensorFromParentGraph(w)]))
    count, go = b.aiOnnx.constant(np.array(4, np.int64)), b.aiOnnx.constant(np.array(True))
    return str(b.aiOnnx.loop([count, go, x], 1, body)[0])


def _while(b: popart.Builder, x: str, w: str) -> str:
    """Passes until the sum of the values is great."""
    body = b.createSubgraphBuilder()
    body.addInputTensor("INT64", [])
    body.addInputTensor("BOOL", [])
    value = body.addInputTensor("FLOAT", [2])
    made = body.aiOnnx.mul([value, body.addInputTensorFromParentGraph(w)])
    total = body.aiOnnx.reducesum([made], keepdims=0)
    body.addOutputTensor(body.aiOnnx.less([total, body.aiOnnx.constant(np.array(50, np.float32))]))
    body.addOutputTensor(made)
    go = b.aiOnnx.constant(np.array(True))
    return str(b.aiOnnx.loop([b.aiOnnx.constant(np.array(9, np.int64)), go, x], 1, body)[0])


def _branch(inside: Make) -> Make:
    def make(b: popart.Builder, x: str, w: str) -> str:
        flag = b.aiOnnx.greater([x, b.aiOnnx.constant(np.zeros(2, np.float32))])
        flag = b.aiOnnx.cast([b.aiOnnx.reducemin([b.aiOnnx.cast([flag], "FLOAT")], keepdims=0)], "BOOL")
        yes, no = b.createSubgraphBuilder(), b.createSubgraphBuilder()
        for each, fn in ((yes, inside), (no, lambda b, x, w: b.aiOnnx.neg([w]))):
            each.addOutputTensor(fn(each, *(each.addInputTensorFromParentGraph(id_) for id_ in (x, w))))
        return str(b.aiOnnx.logical_if([flag], 1, no, yes)[0])

    return make


def _product(b: popart.Builder, x: str, w: str) -> str:
    return str(b.aiOnnx.mul([x, w]))


def _session(make: Make, frozen: bool = False) -> tuple[Any, str, Any]:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2], "x")
    w = builder.addInitializedInputTensor(np.array([2, 3], np.float32), "w")
    y = make(builder, x, builder.aiGraphcore.detach([w]) if frozen else w)
    other = builder.addInitializedInputTensor(np.zeros(2, np.float32), "other")
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.add([y, other])], SUM)
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, []),
        loss,
        popart.ConstSGD(1.0),
        popart.DeviceManager().createCpuDevice(),
    )
    session.prepareDevice()
    session.weightsFromHost()
    session.run(popart.PyStepIO({x: np.ones(2, np.float32)}, {}))
    found = {name: np.zeros(2, np.float32) for name in (w, other)}
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO(found))
    return found["w"].tolist(), loss, found["other"].tolist()


TRAINED: dict[str, tuple[Make, list[float]]] = {
    "a product": (_product, [1, 2]),
    "a loop": (_loop, [2 - 4 * 8, 3 - 4 * 27]),
    "a branch": (_branch(_product), [1, 2]),
    "a loop in a branch": (_branch(_loop), [2 - 4 * 8, 3 - 4 * 27]),
}


@pytest.mark.parametrize("name", TRAINED)
def test_weights_train(name: str) -> None:
    make, wanted = TRAINED[name]
    found, _, other = _session(make)
    assert (found, other) == (wanted, [-1, -1])
    assert _session(make, frozen=True)[0] == [2, 3]


STOPPED: dict[str, tuple[Make, str]] = {
    "a loop of unknown passes": (_while, "while_loop"),
    "such a loop in a branch": (_branch(_while), "conditional"),
    "a reduction over replicas": (
        lambda b, x, w: b.aiGraphcore.replicatedallreduce([_product(b, x, w)]),
        "replicated_all_reduce",
    ),
}


@pytest.mark.parametrize("name", STOPPED)
def test_weights_whose_gradients_end_are_refused(name: str) -> None:
    """They would stay as they are without a word."""
    make, kind = STOPPED[name]
    with pytest.raises(
        errors.UnsupportedError, match=f"gradients of weights do not pass an op, got {kind} at"
    ):
        _session(make)
    found, _, other = _session(make, frozen=True)
    assert (found, other) == ([2, 3], [-1, -1])


def test_transposed_convolutions_train() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1, 2, 3, 3], "x")
    w = builder.addInitializedInputTensor(np.ones((2, 1, 2, 2), np.float32), "w")
    y = builder.aiOnnx.convtranspose([x, w], strides=[2, 2])
    loss = builder.aiGraphcore.identityloss([y], SUM)
    gradient = popart.reservedGradientPrefix() + w
    data = np.arange(18, dtype=np.float32).reshape(1, 2, 3, 3)
    anchors = run_once(builder.getModelProto(), [gradient], {x: data}, loss)
    totals = data.sum((0, 2, 3)).reshape(2, 1, 1, 1)
    np.testing.assert_array_equal(anchors[gradient], totals * np.ones((2, 1, 2, 2)))


@pytest.mark.parametrize("method", ["lstm", "gru", "rnn"])
def test_recurrent_layers_train(method: str) -> None:
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[method]
    builder, rng = popart.Builder(), np.random.default_rng(0)
    x = builder.addInputTensor("FLOAT", [5, 1, 2], "x")
    start = [rng.normal(size=(1, 2 * gates, 2)).astype(np.float32) for _ in range(2)]
    ids = [builder.addInitializedInputTensor(value, name) for value, name in zip(start, "WR", strict=True)]
    y = getattr(builder.aiOnnx, method)([x, *ids], {"lstm": 3}.get(method, 2), hidden_size=2)[0]
    loss = builder.aiGraphcore.identityloss([y], SUM)
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [loss]),
        loss,
        popart.ConstSGD(0.01),
        popart.DeviceManager().createCpuDevice(),
    )
    session.prepareDevice()
    session.weightsFromHost()
    losses = []
    for _ in range(4):
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({x: np.linspace(-1, 1, 10, dtype=np.float32)}, anchors))
        losses.append(float(anchors[loss]))
    assert losses == sorted(losses, reverse=True)
    found = {name: np.zeros_like(value) for value, name in zip(start, "WR", strict=True)}
    session.readWeights(popart.PyWeightsIO(found))
    for value, name in zip(start, "WR", strict=True):
        assert (found[name] != value).any(), name
