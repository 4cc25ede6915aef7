"""The page on grouping replicas as a user of 2022 tested it: names of PopART alone, each statement for each grouping.

``test_seed_groups.py`` has the same page with training between reads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from popsr.compat import popart

onnx = pytest.importorskip("onnx")

SHAPE = [2, 3, 4]
TYPES = {
    "All": popart.CommGroupType.All,
    "Consecutive": popart.CommGroupType.Consecutive,
    "Orthogonal": popart.CommGroupType.Orthogonal,
    "Ungrouped": popart.CommGroupType.Ungrouped,
}
MODES = [popart.VariableRetrievalMode.OnePerGroup, popart.VariableRetrievalMode.AllReplicas]
CASES = [
    (replicas, name, size, mode)
    for replicas in (1, 2, 4, 8, 16)
    for name in TYPES
    for size in ([0] if name in ("All", "Ungrouped") else [n for n in (1, 2, 4, 8, 16) if n <= replicas])
    for mode in MODES
]
IDS = [f"{replicas}-{name}-{size}-{mode.name}" for replicas, name, size, mode in CASES]


def group_of(replica: int, replicas: int, name: str, size: int) -> int:
    """The page's tables: the group of a replica."""
    if name == "All":
        return 0
    if name == "Ungrouped":
        return replica
    return replica // size if name == "Consecutive" else replica % (replicas // size)


def options_of(replicas: int) -> popart.SessionOptions:
    opts = popart.SessionOptions()
    opts.enableReplicatedGraphs = replicas > 1
    opts.replicatedGraphCount = replicas
    opts.enableStochasticRounding = False
    opts.enableNonStableSoftmax = False
    assert opts.getGlobalReplicationFactor() == replicas
    return opts


@pytest.mark.parametrize(("replicas", "name", "size", "mode"), CASES, ids=IDS)
def test_the_page(replicas: int, name: str, size: int, mode: Any, tmp_path: Path) -> None:
    settings = popart.VariableSettings(popart.CommGroup(TYPES[name], size), mode)
    assert settings == popart.VariableSettings(
        commGroup=popart.CommGroup(TYPES[name], size), retrievalMode=mode
    )
    group = [group_of(i, replicas, name, size) for i in range(replicas)]
    groups = max(group) + 1
    assert settings.getGroupCount(replicas) == groups
    assert settings.getRetrievalMode() == mode
    assert settings.getSharedVariableDomain() == popart.CommGroup(TYPES[name], size)
    returned = replicas if mode == popart.VariableRetrievalMode.AllReplicas else groups
    assert settings.numReplicasReturningVariable(replicas) == returned

    # "A tensor with shape [2, 3, 4] that results in 4 groups must be instantiated with shape [4, 2, 3, 4]."
    rows = np.random.default_rng(size).normal(size=(groups, *SHAPE)).astype(np.float32)
    builder = popart.Builder(opsets={"ai.onnx": 10, "ai.graphcore": 1})
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", SHAPE), popart.DebugContext("x"))
    w = builder.addInitializedInputTensor(rows if groups > 1 else rows[0], settings, "w")
    flat = builder.reshape_const(builder.aiOnnx, [builder.aiOnnx.add([x, w])], [24])
    builder.addOutputTensor(flat)
    builder.embedReplicationFactor(replicas)
    assert builder.getTensorShape(w) == SHAPE

    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": replicas})

    def session_of(model: Any) -> popart.InferenceSession:
        session = popart.InferenceSession(
            fnModel=model,
            dataFlow=popart.DataFlow(1, {flat: popart.AnchorReturnType("All")}),
            patterns=popart.Patterns(popart.PatternsLevel.Default),
            userOptions=options_of(replicas),
            deviceInfo=device,
        )
        session.prepareDevice()
        return session

    def run(session: popart.InferenceSession) -> Any:
        anchors = session.initAnchorArrays()
        data = np.zeros((replicas, *SHAPE), np.float32)
        session.run(popart.PyStepIO({x: data}, anchors))
        return anchors[flat].reshape(replicas, *SHAPE)

    def read(session: popart.InferenceSession) -> Any:
        # "If the mode is AllReplicas said outer dimension must match the replication factor."
        buffer = np.full((returned, *SHAPE) if returned > 1 else SHAPE, np.nan, np.float32)
        session.weightsToHost()
        session.readWeights(popart.PyWeightsIO({w: buffer}))
        return buffer.reshape(returned, *SHAPE)

    def as_read(values: Any) -> Any:
        return values[group] if mode == popart.VariableRetrievalMode.AllReplicas else values

    session = session_of(builder.getModelProto())
    np.testing.assert_array_equal(
        run(session), rows[group]
    )  # "where [r, ...] instantiates the variable on replica r"
    np.testing.assert_array_equal(read(session), as_read(rows))

    # "The buffer size must match the size of the initializing data": writing what was read.
    other = -rows
    given = as_read(other) if returned > 1 else as_read(other)[0]
    session.writeWeights(popart.PyWeightsIO({w: np.ascontiguousarray(given)}))
    session.weightsFromHost()
    np.testing.assert_array_equal(run(session), other[group])

    # Checkpoints of ONNX
    path = str(tmp_path / "checkpoint.onnx")
    session.modelToHost(path)
    [saved] = onnx.load(path).graph.initializer
    assert list(saved.dims) == ([groups, *SHAPE] if groups > 1 else SHAPE)
    np.testing.assert_array_equal(np.array(saved.float_data, np.float32), other.reshape(-1))
    for fresh in (session_of(builder.getModelProto()), session_of(path)):
        fresh.resetHostWeights(path)
        fresh.weightsFromHost()
        np.testing.assert_array_equal(run(fresh), other[group])
        np.testing.assert_array_equal(read(fresh), as_read(other))
