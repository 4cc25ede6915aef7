"""A convolutional network, trained by a session on replicas and by PyTorch on all data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from popsr.compat import popart
from tests_py.compat.builder.programs import options_of

pytest.importorskip("onnx")
torch = pytest.importorskip("torch")

REPLICAS, MICRO, SAMPLES, STEPS = 2, 3, 4, 6
SHAPES = {"kernel": (4, 2, 3, 3), "shift": (4,), "table": (36, 5), "bias": (5,)}


def _initial() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {name: (rng.normal(size=shape) * 0.3).astype(np.float32) for name, shape in SHAPES.items()}


def _data() -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    leading = (STEPS, MICRO, REPLICAS, SAMPLES)
    return rng.normal(size=(*leading, 2, 8, 8)).astype(np.float32), rng.integers(0, 5, leading).astype(
        np.int32
    )


def _by_torch(images: Any, labels: Any) -> tuple[list[float], dict[str, Any]]:
    weights = {name: torch.tensor(value, requires_grad=True) for name, value in _initial().items()}
    optimizer = torch.optim.SGD(weights.values(), lr=0.1, momentum=0.9, weight_decay=0.01)
    losses = []
    for step in range(STEPS):
        x = torch.tensor(images[step].reshape(-1, 2, 8, 8))
        y = torch.tensor(labels[step].reshape(-1).astype(np.int64))
        hidden = torch.nn.functional.conv2d(x, weights["kernel"], weights["shift"]).relu()
        pooled = torch.nn.functional.max_pool2d(hidden, 2).flatten(1)
        loss = torch.nn.functional.cross_entropy(pooled @ weights["table"] + weights["bias"], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, {name: value.detach().numpy() for name, value in weights.items()}


def test_losses_and_weights_are_those_of_torch() -> None:
    images, labels = _data()
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [SAMPLES, 2, 8, 8], "images")
    y = builder.addInputTensor("INT32", [SAMPLES], "labels")
    kernel, shift, table, bias = (builder.addInitializedInputTensor(v, k) for k, v in _initial().items())
    hidden = builder.aiOnnx.relu([builder.aiOnnx.conv([x, kernel, shift])])
    [pooled] = builder.aiOnnx.maxpool([hidden], 1, kernel_shape=[2, 2], strides=[2, 2])
    scores = builder.aiOnnx.gemm([builder.aiOnnx.flatten([pooled]), table, bias])
    loss = builder.aiGraphcore.nllloss([builder.aiOnnx.softmax([scores]), y])
    options = options_of(REPLICAS, MICRO)
    options.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    values = {
        "defaultLearningRate": (0.1, False),
        "defaultMomentum": (0.9, False),
        "defaultWeightDecay": (0.01, True),
        "lossScaling": (16.0, False),
    }
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(STEPS, [loss]),
        loss,
        popart.SGD(values),
        popart.DeviceManager().createCpuDevice(),
        userOptions=options,
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: images, y: labels}, anchors))
    losses, weights = _by_torch(images, labels)
    np.testing.assert_allclose(anchors[loss].mean((1, 2)), losses, rtol=1e-5)
    found = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
    session.readWeights(popart.PyWeightsIO(found))
    for name, value in weights.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-6, err_msg=name)
