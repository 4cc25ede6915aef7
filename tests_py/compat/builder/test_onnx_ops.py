"""Ops of ONNX by a Builder: the model is ONNX's, and sessions compute what ONNX's reference computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from popsr import errors
from popsr.compat import popart
from popsr.compat.popart._recording.onnx_ops import signatures
from tests_py.compat.builder.onnx_rows import ROWS, Row

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnx.reference")

CASES = [(version, row) for row in ROWS for version in range(row.since, row.until + 1)]
DEVICE = popart.DeviceManager().createCpuDevice()


def _record(version: int, row: Row) -> tuple[Any, list[str], dict[str, Any]]:
    """The model, its outputs and the arrays of its inputs."""
    builder = popart.Builder()
    ids, arrays = [], {}
    for i, array in enumerate(row.arrays):
        value = np.asarray(array)
        if (i and value.dtype == np.int64 and row.method not in ("scatter", "maxunpool")) or (
            row.method in ("constantofshape", "range", "nonzero", "compress", "resize", "upsample")
            and (i or row.method not in ("resize", "upsample", "compress"))
        ):
            ids.append(builder.addInitializedInputTensor(value, f"w{i}"))
        else:
            ids.append(builder.addInputTensor(popart.TensorInfo(value), f"x{i}"))
            arrays[ids[-1]] = value
    method = getattr(getattr(builder, f"aiOnnxOpset{version}"), row.method)
    made = method(ids, *row.args, **row.named) if row.arrays else method(*row.args, **row.named)
    outputs = [made] if isinstance(made, str) else list(made)
    for each in outputs:
        builder.addOutputTensor(each)
    return builder.getModelProto(), outputs, arrays


IN_SESSIONS = {"logical_if", "loop", "randomnormal", "randomnormallike", "randomuniform", "randomuniformlike"}
"""Methods that test_model_sessions.py tests."""
HERE = {"scan", "unique", "splittosequence", "concatfromsequence"}
HERE |= {f"sequence{word}" for word in ("at", "construct", "empty", "erase", "insert", "length")}
REFUSED = {"maxroipool", "multinomial", "nonmaxsuppression", "stringnormalizer", "tfidfvectorizer"}


def test_each_op_has_a_row() -> None:
    methods = {name for version in range(6, 12) for name in signatures(version)}
    assert {row.method for row in ROWS} | IN_SESSIONS | HERE | REFUSED == methods
    assert len(methods - REFUSED) == 151


def _compared(builder: Any, outputs: list[str], arrays: dict[str, Any]) -> None:
    """A session and ONNX's reference agree."""
    for each in outputs:
        builder.addOutputTensor(each)
    model = onnx.ModelProto.FromString(builder.getModelProto())
    onnx.checker.check_model(model)
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, outputs), DEVICE)
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO(arrays, anchors))
    wanted = onnx.reference.ReferenceEvaluator(model).run(None, arrays)
    for id_, expected in zip(outputs, wanted, strict=True):
        np.testing.assert_allclose(anchors[id_], expected, rtol=1e-6)


def test_sequences() -> None:
    builder = popart.Builder()
    ops, arrays = builder.aiOnnxOpset11, dict[str, Any]()
    for name in "xy":
        arrays[builder.addInputTensor("FLOAT", [2, 3], name)] = np.full((2, 3), len(arrays) + 1, np.float32)
    one, zero = (ops.constant(np.array(i, np.int64)) for i in (1, 0))
    made = ops.sequenceinsert([ops.sequenceconstruct(["x", "y"]), ops.neg(["x"]), zero])
    kept = ops.sequenceerase([made, one])
    parts = ops.splittosequence(["y"], axis=1)
    joined = ops.concatfromsequence([ops.sequenceinsert([ops.sequenceempty(), "x"])], 0)
    outputs = [
        ops.sequenceat([kept, one]),
        ops.concatfromsequence([parts], 1),
        joined,
        ops.sequencelength([made]),
    ]
    _compared(builder, outputs, arrays)


def test_scans() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4, 2], "x")
    start = builder.addInputTensor("FLOAT", [2], "start")
    body = builder.createSubgraphBuilder()
    total, row = body.addInputTensor("FLOAT", [2]), body.addInputTensor("FLOAT", [2])
    more = body.aiOnnxOpset11.add([total, row])
    body.addOutputTensor(more)
    body.addOutputTensor(body.aiOnnxOpset11.mul([more, row]))
    outputs = builder.aiOnnxOpset11.scan([start, x], 2, body, 1)
    data = np.arange(8, dtype=np.float32).reshape(4, 2)
    _compared(builder, outputs, {"x": data, "start": np.ones(2, np.float32)})


def test_unique_values() -> None:
    builder = popart.Builder()
    value = builder.aiOnnxOpset11.constant(np.array([2, 1, 1, 3], np.float32))
    outputs = builder.aiOnnxOpset11.unique([value], 4)
    builder.addInputTensor("FLOAT", [1], "x")
    _compared(
        builder, [builder.aiOnnxOpset11.neg([outputs[0]]), *outputs[1:]], {"x": np.zeros(1, np.float32)}
    )


REFUSED_CALLS: dict[str, Any] = {
    "maxroipool": lambda b: b.aiOnnx.maxroipool(["image", "rois"], [2, 2]),
    "multinomial": lambda b: b.aiOnnx.multinomial(["x"]),
    "nonmaxsuppression": lambda b: b.aiOnnx.nonmaxsuppression(["rois3", "image3"]),
    "stringnormalizer": lambda b: b.aiOnnx.stringnormalizer(["x"]),
    "tfidfvectorizer": lambda b: b.aiOnnx.tfidfvectorizer(["x"], 1, 0, 1, "TF", [0], [0]),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_other_ops_are_refused_by_name(name: str) -> None:
    builder = popart.Builder()
    shapes = {"x": [2, 3], "image": [1, 1, 4, 4], "rois": [1, 5], "rois3": [1, 3, 4], "image3": [1, 1, 3]}
    for id_, shape in shapes.items():
        builder.addInputTensor("FLOAT", shape, id_)
    made = REFUSED_CALLS[name](builder)
    with pytest.raises(errors.UnsupportedOpsError, match=f"(?i){name}"):
        popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [made]), DEVICE)


@pytest.mark.parametrize(("version", "row"), CASES, ids=[f"{row.method}-{version}" for version, row in CASES])
def test_sessions_compute_what_onnx_computes(version: int, row: Row) -> None:
    model, outputs, arrays = _record(version, row)
    parsed = onnx.ModelProto.FromString(model)
    onnx.checker.check_model(parsed)
    assert {each.domain: each.version for each in parsed.opset_import} == {"": version}
    session = popart.InferenceSession(model, popart.DataFlow(1, outputs), DEVICE)
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO(arrays, anchors))
    if row.expected is None:
        wanted = onnx.reference.ReferenceEvaluator(parsed).run(None, arrays)
    else:
        wanted = [np.asarray(row.expected(*map(np.asarray, row.arrays)), anchors[outputs[0]].dtype)]
    for id_, expected in zip(outputs, wanted, strict=True):
        is_place = row.method in ("argmax", "argmin")  # int32 in programs of a Builder
        assert anchors[id_].dtype == (np.int32 if is_place else expected.dtype)
        np.testing.assert_allclose(anchors[id_], expected, rtol=row.tolerance, atol=row.tolerance)
