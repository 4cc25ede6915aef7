"""Variables of groups of replicas: all groupings, both retrieval modes, training between reads, models of ONNX.

Each test is a statement of PopART's page on grouped variables.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from popsr import errors
from popsr.compat import popart

onnx = pytest.importorskip("onnx")

SHAPE = (2, 3, 4)
ALL, ONE = popart.VariableRetrievalMode.AllReplicas, popart.VariableRetrievalMode.OnePerGroup
Kind = popart.CommGroupType
RATE = 0.5


def _groups(kind: Any, replicas: int, size: int) -> list[list[int]]:
    """The groups as the page describes them."""
    everyone = list(range(replicas))
    if kind == Kind.All:
        return [everyone]
    if kind == Kind.Ungrouped:
        return [[replica] for replica in everyone]
    count = replicas // size
    if kind == Kind.Consecutive:
        return [everyone[size * i : size * (i + 1)] for i in range(count)]
    return [everyone[i::count] for i in range(count)]


CASES = [
    (replicas, kind, size)
    for replicas in (2, 4, 16)
    for kind in (Kind.All, Kind.Consecutive, Kind.Orthogonal, Kind.Ungrouped)
    for size in (
        (0,) if kind in (Kind.All, Kind.Ungrouped) else [n for n in (1, 2, 4, 8, 16) if n <= replicas]
    )
]
NAMES = [f"{replicas}-{kind.name}-{size}" for replicas, kind, size in CASES]


def options_of(replicas: int) -> popart.SessionOptions:
    """Options of a session with replicas."""
    options = popart.SessionOptions()
    options.enableReplicatedGraphs, options.replicatedGraphCount = replicas > 1, replicas
    return options


class Program:
    """A weight w whose gradient is its replica's x: y = sum(w * x)."""

    def __init__(self, replicas: int, initial: Any, settings: Any) -> None:
        self.builder = popart.Builder()
        self.x = self.builder.addInputTensor(popart.TensorInfo("FLOAT", list(SHAPE)), "x")
        self.w = self.builder.addInitializedInputTensor(initial, settings, "w")
        product = self.builder.aiOnnx.mul([self.w, self.x])
        self.loss = self.builder.aiGraphcore.identityloss([product], popart.ReductionType.Sum)
        self.builder.addOutputTensor(self.loss)
        self.replicas = replicas

    def session(self, model: Any = None) -> popart.TrainingSession:
        """A session that is ready to run."""
        session = popart.TrainingSession(
            fnModel=self.builder.getModelProto() if model is None else model,
            dataFlow=popart.DataFlow(1, {self.loss: popart.AnchorReturnType("All")}),
            loss=self.loss,
            optimizer=popart.ConstSGD(RATE),
            userOptions=options_of(self.replicas),
            deviceInfo=popart.DeviceManager().createIpuModelDevice({"numIPUs": self.replicas}),
        )
        session.prepareDevice()
        session.weightsFromHost()
        return session

    def train(self, session: popart.TrainingSession, x: Any) -> Any:
        """One step; returns the losses."""
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({self.x: x}, anchors))
        return anchors[self.loss]


def read(session: popart.TrainingSession, shape: tuple[int, ...]) -> Any:
    """The weight as ``readWeights`` fills a buffer."""
    buffer = np.full(shape, np.nan, np.float32)
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO({"w": buffer}))
    return buffer


@pytest.mark.parametrize("mode", [ONE, ALL], ids=["OnePerGroup", "AllReplicas"])
@pytest.mark.parametrize(("replicas", "kind", "size"), CASES, ids=NAMES)
def test_groups_are_initialised_trained_read_and_restored(
    replicas: int, kind: Any, size: int, mode: Any, tmp_path: Path
) -> None:
    settings = popart.VariableSettings(popart.CommGroup(kind, size), mode)
    groups = _groups(kind, replicas, size)
    assert [list(each) for each in settings.groups(replicas)] == groups
    assert settings.getGroupCount(replicas) == len(groups)
    assert [settings.getGroupRepresentative(replicas, i) for i in range(len(groups))] == [
        g[0] for g in groups
    ]
    returned = replicas if mode == ALL else len(groups)
    assert settings.numReplicasReturningVariable(replicas) == returned

    rng = np.random.default_rng(replicas + size)
    rows = rng.integers(-8, 8, (len(groups), *SHAPE)).astype(np.float32)
    program = Program(replicas, rows if len(groups) > 1 else rows[0], settings)
    session = program.session()

    def as_read(values: Any) -> Any:
        order = (
            [next(i for i, g in enumerate(groups) if r in g) for r in range(replicas)]
            if mode == ALL
            else slice(None)
        )
        chosen = values[order]
        return chosen if returned > 1 else chosen[0]

    buffer_shape = (returned, *SHAPE) if returned > 1 else SHAPE
    np.testing.assert_array_equal(read(session, buffer_shape), as_read(rows))

    for _ in range(2):  # training between reads
        x = rng.integers(-4, 4, (replicas, *SHAPE)).astype(np.float32)
        losses = program.train(session, x)
        per_replica = rows[[next(i for i, g in enumerate(groups) if r in g) for r in range(replicas)]]
        np.testing.assert_array_equal(losses, (per_replica * x).sum((1, 2, 3)))
        rows = np.asarray(rows - RATE * np.stack([x[g].sum(0) for g in groups]), np.float32)
        np.testing.assert_array_equal(read(session, buffer_shape), as_read(rows))

    path = tmp_path / "after.onnx"
    session.modelToHost(str(path))
    program.train(session, x)
    session.resetHostWeights(str(path))
    session.weightsFromHost()
    np.testing.assert_array_equal(read(session, buffer_shape), as_read(rows))
    other = program.session()
    other.resetHostWeights(path.read_bytes())
    other.weightsFromHost()
    np.testing.assert_array_equal(read(other, buffer_shape), as_read(rows))
    again = program.session(str(path))
    np.testing.assert_array_equal(read(again, buffer_shape), as_read(rows))


@pytest.mark.parametrize("mode", [ONE, ALL], ids=["OnePerGroup", "AllReplicas"])
def test_weights_are_written_as_they_are_read(mode: Any) -> None:
    settings = popart.VariableSettings(popart.CommGroup(Kind.Consecutive, 2), mode)
    program = Program(4, np.zeros((2, *SHAPE), np.float32), settings)
    session = program.session()
    returned = 4 if mode == ALL else 2
    rows = np.arange(2, dtype=np.float32).reshape(2, 1, 1, 1) + np.zeros((2, *SHAPE), np.float32)
    given = np.repeat(rows, returned // 2, 0)
    session.writeWeights(popart.PyWeightsIO({"w": given}))
    session.weightsFromHost()
    np.testing.assert_array_equal(read(session, given.shape), given)


def test_groups_by_stride_and_size() -> None:
    settings = popart.VariableSettings(2, 2)
    assert (settings.isUsingCommGroup(), settings.getStride(), settings.getGroupSize()) == (False, 2, 2)
    assert settings.getCommGroupType() == Kind.Ungrouped
    rows = np.arange(4, dtype=np.float32).reshape(4, 1, 1, 1) + np.zeros((4, *SHAPE), np.float32)
    program = Program(8, rows, settings)
    session = program.session()
    x = np.ones((8, *SHAPE), np.float32)
    losses = program.train(session, x) / x[0].size
    np.testing.assert_array_equal(losses, [0, 1, 0, 1, 2, 3, 2, 3])
    np.testing.assert_array_equal(read(session, rows.shape), rows - 2 * RATE)


def test_the_replication_factor_is_embedded() -> None:
    settings = popart.VariableSettings(popart.CommGroup(Kind.Orthogonal, 2))
    program = Program(4, np.zeros((2, *SHAPE), np.float32), settings)
    builder = program.builder
    assert builder.getTensorShape(program.w) == [2, *SHAPE]
    builder.embedReplicationFactor(4)
    assert builder.getTensorShape(program.w) == list(SHAPE)
    assert {
        each.key: each.value for each in onnx.ModelProto.FromString(builder.getModelProto()).metadata_props
    } == {"__replicationFactor": "4"}
    program.session()
    program.replicas = 8
    with pytest.raises(errors.ReplicaError, match="made for 4 replicas, got 8"):
        program.session()
    with pytest.raises(errors.ShapeError, match="w"):
        builder.embedReplicationFactor(8)


WRONG: dict[str, tuple[Any, Any, tuple[int, ...]]] = {
    "no row per group": (errors.ShapeError, popart.CommGroup(Kind.Consecutive, 2), SHAPE[1:]),
    "a row per replica": (errors.ShapeError, popart.CommGroup(Kind.Consecutive, 2), (4, *SHAPE)),
    "a size that does not divide": (errors.ReplicaError, popart.CommGroup(Kind.Consecutive, 3), (2, *SHAPE)),
}


@pytest.mark.parametrize("name", WRONG)
def test_initial_values_without_a_row_for_each_group(name: str) -> None:
    error, group, shape = WRONG[name]
    program = Program(4, np.zeros(shape, np.float32), popart.VariableSettings(group))
    with pytest.raises(error):
        program.session()


@pytest.mark.parametrize(("mode", "rows"), [(ONE, 4), (ALL, 2)], ids=["OnePerGroup", "AllReplicas"])
def test_buffers_of_another_size_are_refused(mode: Any, rows: int) -> None:
    settings = popart.VariableSettings(popart.CommGroup(Kind.Consecutive, 2), mode)
    session = Program(4, np.zeros((2, *SHAPE), np.float32), settings).session()
    with pytest.raises(errors.ShapeError, match=r"readWeights|read_weights"):
        read(session, (rows, *SHAPE))


def test_models_of_another_grouping_are_refused(tmp_path: Path) -> None:
    pairs = Program(
        4, np.zeros((2, *SHAPE), np.float32), popart.VariableSettings(popart.CommGroup(Kind.Consecutive, 2))
    )
    alone = Program(
        4, np.zeros((4, *SHAPE), np.float32), popart.VariableSettings(popart.CommGroup(Kind.Ungrouped))
    )
    pairs.session().modelToHost(tmp_path / "pairs.onnx")
    with pytest.raises(errors.ShapeError, match="shapes differ for 'w'"):
        alone.session().resetHostWeights(tmp_path / "pairs.onnx")
