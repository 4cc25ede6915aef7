"""Ops of ONNX by a Builder: the model is ONNX's, and sessions compute what ONNX's reference computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from popsr.compat import popart
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
        assert anchors[id_].dtype == expected.dtype
        np.testing.assert_allclose(anchors[id_], expected, rtol=row.tolerance, atol=row.tolerance)
