"""Ops of ai.graphcore by a Builder: sessions compute what NumPy computes; the others are refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from popsr import errors
from popsr.compat import popart
from popsr.compat.popart._recording.graphcore_ops import signatures
from tests_py.compat.builder.graphcore_rows import ROWS, Row

onnx = pytest.importorskip("onnx")

DEVICE = popart.DeviceManager().createCpuDevice()
ELSEWHERE = {"call", "multiconv", "replicatedallreduce", "replicatedreducescatter"}
REFUSED = {"abort", "ctcbeamsearchdecoder", "packedDataBlock"}


def run(builder: Any, outputs: list[str], arrays: dict[str, Any], options: Any = None) -> list[Any]:
    """Results of an inference session for outputs."""
    for each in outputs:
        builder.addOutputTensor(each)
    session = popart.InferenceSession(
        builder.getModelProto(), popart.DataFlow(1, outputs), DEVICE, userOptions=options
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO(arrays, anchors))
    return [anchors[each] for each in outputs]


def test_each_op_has_a_row() -> None:
    assert {row.method for row in ROWS} | ELSEWHERE | REFUSED == set(signatures())
    assert len(set(signatures()) - REFUSED) == 55


@pytest.mark.parametrize("row", ROWS, ids=[row.method for row in ROWS])
def test_sessions_compute_what_numpy_computes(row: Row) -> None:
    builder = popart.Builder()
    arrays: dict[str, Any] = {}
    for i, value in enumerate(row.arrays):
        if row.method == "copyvarupdate" and i == 0:
            arrays["w"] = builder.addInitializedInputTensor(value, "w")
        else:
            arrays[builder.addInputTensor(popart.TensorInfo(value), f"x{i}")] = value
    ids = list(arrays)
    method = getattr(builder.aiGraphcore, row.method)
    made = method(ids, *row.args, **row.named) if row.arrays else method(*row.args, **row.named)
    outputs = [made] if isinstance(made, str) else list(made)
    arrays.pop("w", None)
    onnx.checker.check_model(onnx.ModelProto.FromString(builder.getModelProto()))
    found = run(builder, outputs, arrays)
    wanted = row.expected(*row.arrays)
    for result, expected in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        assert result.shape == np.shape(expected)
        if np.asarray(expected).dtype == np.float16:
            assert result.dtype == np.float16
        np.testing.assert_allclose(result, expected, rtol=row.tolerance, atol=row.tolerance)


def test_convolutions_together() -> None:
    builder, rng = popart.Builder(), np.random.default_rng(0)
    data = [
        rng.normal(size=(1, 2, 5, 5)).astype(np.float32),
        rng.normal(size=(1, 2, 6, 6)).astype(np.float32),
    ]
    weights = [rng.normal(size=(3, 2, 3, 3)).astype(np.float32) for _ in data]
    ids = [builder.addInputTensor(popart.TensorInfo(each)) for each in data]
    kept = [builder.addInitializedInputTensor(each) for each in weights]
    pairs = [list(pair) for pair in zip(ids, kept, strict=True)]
    together = builder.aiGraphcore.multiconv(
        pairs, pads=[[1, 1, 1, 1], [0, 0, 0, 0]], strides=[[1, 1], [2, 2]]
    )
    alone = [
        builder.aiOnnx.conv(pairs[0], pads=[1, 1, 1, 1]),
        builder.aiOnnx.conv(pairs[1], strides=[2, 2]),
    ]
    found = run(builder, [*together, *alone], dict(zip(ids, data, strict=True)))
    for one, other in zip(found[:2], found[2:], strict=True):
        np.testing.assert_array_equal(one, other)


def test_calls_run_a_graph_of_its_own() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3], "x")
    callee = builder.createSubgraphBuilder()
    inner = callee.addInputTensor("FLOAT", [3])
    callee.addOutputTensor(callee.aiGraphcore.scale([inner], 2.0))
    [y] = builder.aiGraphcore.call([x], 1, callee)
    [z] = builder.aiGraphcore.call([y], 1, callee)
    [found] = run(builder, [z], {x: np.ones(3, np.float32)})
    np.testing.assert_array_equal(found, np.full(3, 4, np.float32))


COLLECTIVES: dict[str, tuple[Any, Any, Any]] = {
    "add": ({}, None, lambda x: np.stack([x.sum(0)] * 4)),
    "mean": (
        {"collectiveOperator": popart.CollectiveOperator.Mean},
        None,
        lambda x: np.stack([x.mean(0)] * 4),
    ),
    "local": ({"collectiveOperator": popart.CollectiveOperator.Local}, None, lambda x: x),
    "max of pairs": (
        {"collectiveOperator": popart.CollectiveOperator.Max},
        popart.CommGroup(popart.CommGroupType.Consecutive, 2),
        lambda x: np.repeat([x[:2].max(0), x[2:].max(0)], 2, 0),
    ),
    "orthogonal": ({}, [2, 2], lambda x: np.stack([x[0] + x[2], x[1] + x[3]] * 2)),
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives(name: str) -> None:
    named, group, expected = COLLECTIVES[name]
    builder, data = popart.Builder(), np.arange(8, dtype=np.float32).reshape(4, 2)
    x = builder.addInputTensor("FLOAT", [2], "x")
    y = builder.aiGraphcore.replicatedallreduce(
        [x], **named, **({} if group is None else {"commGroup": group})
    )
    options = popart.SessionOptions()
    options.enableReplicatedGraphs, options.replicatedGraphCount = True, 4
    np.testing.assert_array_equal(run(builder, [y], {x: data}, options)[0], expected(data))


def test_reduced_parts() -> None:
    builder, data = popart.Builder(), np.arange(8, dtype=np.float32).reshape(2, 4)
    x = builder.addInputTensor("FLOAT", [4], "x")
    y = builder.aiGraphcore.replicatedreducescatter([x])
    options = popart.SessionOptions()
    options.enableReplicatedGraphs, options.replicatedGraphCount = True, 2
    np.testing.assert_array_equal(run(builder, [y], {x: data}, options)[0], data.sum(0).reshape(2, 2))


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_other_ops_are_refused_by_name(name: str) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3, 1, 2], "x")
    n = builder.addInputTensor("UINT32", [1], "n")
    callback = builder.createSubgraphBuilder()
    calls: dict[str, Any] = {
        "abort": lambda: (builder.aiGraphcore.abort([x]), builder.aiGraphcore.nop([x]))[1],
        "ctcbeamsearchdecoder": lambda: builder.aiGraphcore.ctcbeamsearchdecoder([x, n])[0],
        "packedDataBlock": lambda: builder.aiGraphcore.packedDataBlock([x, n, n], [2], 4, 1, callback),
    }
    made = calls[name]()
    op_type = signatures()[name].op_type
    with pytest.raises(errors.UnsupportedOpsError, match=op_type):
        popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [made]), DEVICE)
