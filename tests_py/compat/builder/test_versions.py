"""Ops of several versions of ONNX in one builder: each has the meaning of its version."""

from __future__ import annotations

import numpy as np
import pytest

from popsr import errors
from popsr.bridge.onnx import load
from popsr.compat import popart
from tests_py.compat.builder.programs import run_once

onnx = pytest.importorskip("onnx")

X = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)


@pytest.mark.parametrize("first", [6, 7, 8, 9, 10, 11])
def test_each_op_has_its_version(first: int) -> None:
    """Slice and Clip have attributes first, and operands from 10 and 11 on; Dropout's mask changes its type with 10."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo(X), "x")
    getattr(builder, f"aiOnnxOpset{first}").neg([x])
    one = builder.aiOnnxOpset9.slice([x], [2, 2], [0, 1], [0, 1])
    bounds = [builder.aiOnnx.constant(np.array(each, np.int64)) for each in ([0, 1], [2, 2], [0, 1])]
    two = builder.aiOnnxOpset10.slice([x, *bounds])
    low = builder.aiOnnxOpset6.clip([x], 2.0, -2.0)
    high = builder.aiOnnxOpset11.clip([x, builder.aiOnnx.constant(np.array(0, np.float32))])
    product = builder.aiOnnxOpset9.matmul([x, builder.aiOnnxOpset11.transpose([x], [1, 0])])
    ids = [one, two, low, high, product]
    shapes = [builder.getTensorShape(id_) for id_ in ids]
    found = run_once(builder.getModelProto(), ids, {x: X})
    wanted = [X[:, 1:2], X[:, 1:2], X.clip(-2, 2), X.clip(0), X @ X.T]
    for id_, value in zip(ids, wanted, strict=True):
        np.testing.assert_array_equal(found[id_], value)
    assert shapes == [list(each.shape) for each in wanted]
    versions = {
        each.domain: each.version for each in onnx.ModelProto.FromString(builder.getModelProto()).opset_import
    }
    assert versions[""] == first


def test_ops_that_did_not_change_are_of_the_model() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo(X), "x")
    y = builder.aiOnnxOpset11.relu([builder.aiOnnxOpset8.neg([x])])
    builder.addOutputTensor(y)
    model = onnx.ModelProto.FromString(builder.getModelProto())
    onnx.checker.check_model(model)
    assert [(each.domain, each.version) for each in model.opset_import] == [("", 8)]


def test_other_tools_do_not_misread_an_op_of_another_version() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo(X), "x")
    y = builder.aiOnnxOpset6.clip([builder.aiOnnxOpset11.neg([x])], 1.0)
    builder.addOutputTensor(y)
    with pytest.raises(errors.UnsupportedOpsError, match=r"Clip \(of the domain popart\.opset6"):
        load(onnx.ModelProto.FromString(builder.getModelProto()))


def test_norms_and_dropout_of_another_version_train() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [64], "x")
    w = builder.addInitializedInputTensor(np.ones(64, np.float32), "w")
    y, mask = builder.aiOnnxOpset10.dropout([builder.aiOnnxOpset11.mul([x, w])], 2, 0.5)
    z, *_ = builder.aiOnnxOpset7.dropout([y], 1, 0.5)
    loss = builder.aiGraphcore.identityloss([z], popart.ReductionType.Sum)
    anchors = run_once(builder.getModelProto(), [z, mask], {x: np.ones(64, np.float32)}, loss)
    assert anchors[mask].dtype == bool
    assert set(np.unique(anchors[z])) == {0.0, 4.0}
    assert 4 < (anchors[z] != 0).sum() < 28
