"""A program of ``popart.Builder``: weights of groups of replicas, trained, read, saved and restored.

The four replicas form two groups. Each group trains a weight of its own on the data of its replicas, in two micro
batches. The model is one of ONNX, and so is the file that ``modelToHost`` writes.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from popsr.compat import popart

REPLICAS, MICRO, SAMPLES, STEPS = 4, 2, 16, 40
rng = np.random.default_rng(0)

builder = popart.Builder()
x = builder.addInputTensor(popart.TensorInfo("FLOAT", [SAMPLES, 3]), "x")
y = builder.addInputTensor(popart.TensorInfo("FLOAT", [SAMPLES, 1]), "y")
groups = popart.VariableSettings(
    popart.CommGroup(popart.CommGroupType.Consecutive, 2), popart.VariableRetrievalMode.OnePerGroup
)
w = builder.addInitializedInputTensor(np.zeros((2, 3, 1), np.float32), groups, "w")  # a row for each group
error = builder.aiOnnx.sub([builder.aiOnnx.matmul([x, w]), y])
loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([error, error])])
builder.addOutputTensor(loss)

options = popart.SessionOptions()
options.enableReplicatedGraphs, options.replicatedGraphCount = True, REPLICAS
options.enableGradientAccumulation, options.accumulationFactor = True, MICRO
options.accumulationAndReplicationReductionType = popart.ReductionType.Mean
session = popart.TrainingSession(
    fnModel=builder.getModelProto(),
    dataFlow=popart.DataFlow(STEPS, {loss: popart.AnchorReturnType("All")}),
    loss=loss,
    optimizer=popart.SGD({"defaultLearningRate": (0.1, False), "defaultMomentum": (0.5, True)}),
    userOptions=options,
    deviceInfo=popart.DeviceManager().createIpuModelDevice({"numIPUs": REPLICAS}),
)
session.prepareDevice()
session.weightsFromHost()

# The first group learns one map, the second another.
maps = np.array([[1.0, -2.0, 3.0], [-1.0, 0.5, 2.0]], np.float32)
data = rng.normal(size=(STEPS, MICRO, REPLICAS, SAMPLES, 3)).astype(np.float32)
targets = np.einsum("tmrsi,ri->tmrs", data, maps[[0, 0, 1, 1]])[..., None].astype(np.float32)
anchors = session.initAnchorArrays()
session.run(popart.PyStepIO({x: data, y: targets}, anchors))
losses = anchors[loss].mean((1, 2))
print(f"loss {losses[0]:.2f} -> {losses[-1]:.6f}")


def weights() -> Any:
    """The weights of both groups."""
    buffer = np.empty((2, 3, 1), np.float32)
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO({w: buffer}))
    return buffer


trained = weights()
for group, row in enumerate(trained):
    print(f"group {group}: {', '.join(f'{value:.2f}' for value in row.flat)}")

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "trained.onnx"
    session.modelToHost(str(path))
    session.run(popart.PyStepIO({x: data, y: 0 * targets}, anchors))
    session.resetHostWeights(str(path))
    session.weightsFromHost()
print(f"restored: {np.array_equal(weights(), trained)}")
