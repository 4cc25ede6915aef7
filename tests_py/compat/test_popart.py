"""popart: devices, loggers, data flow, exceptions, and sessions of an Ir."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr.compat import popart
from tests_py.support.helpers import run_python
from tests_py.support.unchecked import unchecked


def _program() -> tuple[popsr.Ir, Any, Any, Any]:
    """y = x + w; w doubles in each run."""
    ir = popsr.Ir(2)
    with ir.main_graph, popsr.in_sequence():
        x, y = popsr.h2d_stream((3,), popsr.float32, "x"), popsr.d2h_stream((3,), popsr.float32, "y")
        w = popsr.variable(np.ones(3), popsr.float32, "w")
        ops.host_store(y, ops.host_load(x) + w)
        ops.var_updates.accumulate_(w, w)
    return ir, x, y, w


def test_version() -> None:
    assert popart.versionString() == f"3.4.0 (popsr {popsr.__version__})"


def test_unknown_names() -> None:
    with pytest.raises(
        AttributeError, match="'popart' has no attribute 'DeviceManger', expected 'DeviceManager'"
    ):
        _ = popart.DeviceManger  # type: ignore[attr-defined]


# Exceptions


@pytest.mark.parametrize("name", [name for name in popart.__all__ if name.endswith(("_error", "_exception"))])
def test_exceptions_are_errors_of_popsr(name: str) -> None:
    cls = getattr(popart, name)
    assert issubclass(cls, errors.Error)
    # Programs go on after a recoverable fault; an internal one is a defect.
    catches_all = name not in ("poplar_recoverable_runtime_error", "popart_internal_exception")
    assert issubclass(errors.OutOfRangeError, cls) is catches_all


# Devices

DEVICES = {
    "createCpuDevice": (lambda m: m.createCpuDevice(), 1),
    "createIpuModelDevice": (
        lambda m: m.createIpuModelDevice({"numIPUs": 4, "tilesPerIPU": 8, "other": "x"}),
        4,
    ),
    "createSimDevice": (lambda m: m.createSimDevice({"numIPUs": np.int64(2)}), 2),
    "createOfflineIPUDevice": (lambda m: m.createOfflineIPUDevice({}), 1),
    "acquireAvailableDevice": (lambda m: m.acquireAvailableDevice(4), 4),
    "tryAcquireAvailableDevice": (lambda m: m.tryAcquireAvailableDevice(numIpus=2), 2),
    "on demand": (
        lambda m: m.acquireAvailableDevice(1, connectionType=popart.DeviceConnectionType.OnDemand),
        1,
    ),
    "acquireDeviceById": (lambda m: m.acquireDeviceById(7), 1),
    "enumerateDevices": (lambda m: m.enumerateDevices(numIpus=2)[0], 2),
}


@pytest.mark.parametrize("name", DEVICES)
def test_devices(name: str) -> None:
    make, ipus = DEVICES[name]
    device = make(popart.DeviceManager())
    assert isinstance(device, popart.DeviceInfo)
    assert device.numIpus == ipus
    assert isinstance(device.id, int)
    assert unchecked(device).isAttached is (name not in ("createCpuDevice", "on demand", "enumerateDevices"))
    with device as entered:
        assert entered is device
        assert unchecked(device).isAttached
    assert not device.isAttached
    assert device.attach()
    device.detach()
    ir, x, y, _ = _program()
    with popsr.Session(ir, device_desc=device) as session:
        assert session.run({x: np.ones((2, 3), np.float32)})[y].tolist() == [[2] * 3] * 2


def test_bad_devices() -> None:
    manager = popart.DeviceManager()
    calls: dict[str, Any] = {
        "acquireAvailableDevice: numIpus is not an int, got '4'": lambda: manager.acquireAvailableDevice(
            unchecked("4")
        ),
        "acquireAvailableDevice: numIpus: got 0": lambda: manager.acquireAvailableDevice(0),
        "acquireAvailableDevice: connectionType": lambda: manager.acquireAvailableDevice(
            1, connectionType=unchecked(1)
        ),
        "createIpuModelDevice: numIpus is not an int": lambda: manager.createIpuModelDevice({"numIPUs": "4"}),
        "createSimDevice: options is not a mapping": lambda: manager.createSimDevice(unchecked(4)),
        "acquireDeviceById: id": lambda: manager.acquireDeviceById(-1),
        "setOnDemandAttachTimeout": lambda: manager.setOnDemandAttachTimeout(unchecked("x")),
        "Session: unknown device_desc, got <DeviceManager object>": lambda: popsr.Session(
            _program()[0], unchecked(manager)
        ),
    }
    for text, call in calls.items():
        with pytest.raises(errors.Error, match=f"^{text}"):
            call()


# Loggers


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    root = logging.getLogger("popsr")
    yield root
    root.setLevel(logging.NOTSET)


def test_loggers_are_popsrs(logger: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    ours = popart.getLogger()
    levels = {
        "TRACE": 5,
        "DEBUG": logging.DEBUG,
        "INFO": logging.INFO,
        "WARN": logging.WARNING,
        "ERR": logging.ERROR,
        "CRITICAL": logging.CRITICAL,
    }
    for name, level in levels.items():
        ours.setLevel(name)
        assert logger.level == level
    ours.setLevel("TRACE")
    for method in (ours.trace, ours.debug, ours.info, ours.warn, ours.error, ours.critical):
        method("100% of it")
    assert [record.levelno for record in caplog.records] == list(levels.values())
    assert {record.getMessage() for record in caplog.records} == {"100% of it"}
    ours.setLevel("OFF")
    ours.critical("nothing")
    assert len(caplog.records) == len(levels)
    popart.getLogger("ir").setLevel("DEBUG")
    assert logger.level > logging.CRITICAL
    with pytest.raises(
        errors.AttributeValueError, match=r"^setLevel: unknown level, got 'LOUD', expected one of"
    ):
        ours.setLevel("LOUD")
    with pytest.raises(errors.ArgumentTypeError, match=r"^getLogger: name is not a str"):
        popart.getLogger(3)  # type: ignore[arg-type]


LOGS = """
import logging, sys
import popsr
from popsr.compat import popart
sys.stderr = sys.stdout
popart.getLogger().setLevel("INFO")
ir = popsr.Ir()
ir.options.numIOTiles = 32
with ir.main_graph:
    popsr.ops.exp(popsr.constant(1.0, popsr.float32))
popsr.Session(ir)
logging.basicConfig(format="of the program: %(message)s", stream=sys.stdout)
popsr.Session(ir)
"""


def test_lines_are_shown_once() -> None:
    """By a handler of popsr's until the program has one."""
    lines = run_python(LOGS).splitlines()
    assert len(lines) == 2
    assert "popsr INFO: Session: these options were set" in lines[0]
    assert lines[1].startswith("of the program: Session: these options were set")


# Data flow and patterns


def test_data_flow() -> None:
    every = popart.AnchorReturnType("EveryN", 2)
    flow = popart.DataFlow(4, {"a": popart.AnchorReturnType("All"), "b": every})
    assert (flow.batchesPerStep(), flow.anchors(), flow.nAnchors()) == (4, ["a", "b"], 2)
    assert flow.art("b") == every != flow.art("a")
    assert (every.id(), every.rp()) == (popart.AnchorReturnTypeId.EveryN, 2)
    assert flow.isAnchored("a")
    assert not flow.isAnchored("c")
    flow.setBatchesPerStep(3)
    assert flow.batchesPerStep() == 3
    assert popart.DataFlow(1, ["a"]).art("a") == popart.AnchorReturnType("All")
    assert popart.AnchorReturnType("ALL") == popart.AnchorReturnType("All")
    assert popart.AnchorReturnType("everyn", 2) == every
    assert popart.DataFlow().nAnchors() == 0
    tiles, strategy = popart.TileSet.IO, popart.ExchangeStrategy.OverlapInnerLoop
    assert popart.AnchorReturnType("EveryN", 2, tiles, strategy) == every
    assert (
        popart.AnchorReturnType("All", tiles, strategy)
        == popart.AnchorReturnType("All", tiles)
        == flow.art("a")
    )
    assert popart.AnchorReturnType("All", tileSet=tiles, exchangeStrategy=strategy) == flow.art("a")
    calls: dict[str, Any] = {
        "DataFlow: batchesPerStep is not an int": lambda: popart.DataFlow("1"),  # type: ignore[arg-type]
        "DataFlow: return type is not": lambda: popart.DataFlow(1, {"a": "All"}),  # type: ignore[dict-item]
        "DataFlow: anchorTensors is not a sequence": lambda: popart.DataFlow(1, "a"),
        "DataFlow: anchorTensors is not a str": lambda: popart.DataFlow(1, [[]]),  # type: ignore[list-item]
        "DataFlow.art: no such anchor, got 'c'": lambda: flow.art("c"),
        "AnchorReturnType: unknown name, got 'Some'": lambda: popart.AnchorReturnType("Some"),
        "AnchorReturnType: exchangeStrategy is not": lambda: popart.AnchorReturnType("All", tiles, 2),  # type: ignore[arg-type]
        "AnchorReturnType: EveryN with period 0": lambda: popart.AnchorReturnType("EveryN"),
        "AnchorReturnType: All with period 2": lambda: popart.AnchorReturnType("All", 2),
    }
    for text, call in calls.items():
        with pytest.raises(errors.Error, match=f"^{text}"):
            call()


def test_patterns_are_recorded() -> None:
    patterns = popart.Patterns(popart.PatternsLevel.Minimal)
    assert not patterns.isPatternEnabled("OpToIdentity")
    assert patterns.enablePattern("OpToIdentity", True).isPatternEnabled("OpToIdentity")
    patterns.InPlace = True
    assert patterns.InPlace
    assert popart.Patterns().isPatternEnabled("OpToIdentity")
    assert popart.Patterns(["OpToIdentity"]).isPatternEnabled("OpToIdentity")
    assert not popart.Patterns([]).enableRuntimeAsserts(False).InPlace
    for bad in (3, "All", [3]):
        with pytest.raises(errors.Error, match=r"^Patterns: patterns"):
            popart.Patterns(bad)  # type: ignore[arg-type]


# Sessions


@pytest.mark.parametrize("kind", [popart.InferenceSession, popart.TrainingSession])
def test_sessions_of_an_ir(kind: Any, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    ir, x, y, _ = _program()
    session = kind.fromIr(ir=ir._pb_ir, deviceInfo=popart.DeviceManager().createCpuDevice())
    anchors = session.initAnchorArrays()
    assert {name: array.shape for name, array in anchors.items()} == {y.tensor_id: (2, 3)}
    assert (session.replicationFactor, session.accumulationFactor) == (2, 1)
    assert session.dataFlow.anchors() == [y.tensor_id]
    stepio = popart.PyStepIO({x.tensor_id: np.ones((2, 3), np.float32)}, anchors)
    with pytest.raises(errors.SessionError, match=r"run: no device is prepared.*session.prepareDevice\(\)"):
        session.run(stepio)
    session.prepareDevice()
    session.weightsFromHost()
    session.run(stepio)
    session.run(stepio, "second")
    np.testing.assert_array_equal(anchors[y.tensor_id], np.full((2, 3), 3))
    session.weightsToHost()
    value = np.zeros(3, np.float32)
    session.readWeights(popart.PyWeightsIO({"w": value}))
    np.testing.assert_array_equal(value, np.full(3, 4))
    session.modelToHost(str(tmp_path / "model.onnx"))
    session.writeWeights(popart.PyWeightsIO({"w": np.zeros(3, np.float32)}))
    session.run(stepio)
    np.testing.assert_array_equal(anchors[y.tensor_id], np.ones((2, 3)))
    session.resetHostWeights(str(tmp_path / "model.onnx"))
    session.weightsFromHost()
    session.run(stepio)
    np.testing.assert_array_equal(anchors[y.tensor_id], np.full((2, 3), 5))


def test_bad_sessions() -> None:
    ir, x, _, _ = _program()
    device = popart.DeviceManager().createCpuDevice()
    session = popart.InferenceSession.fromIr(ir, device)
    session.prepareDevice()
    calls: dict[str, Any] = {
        "InferenceSession: fnModel is missing": lambda: popart.InferenceSession(
            dataFlow=popart.DataFlow(), deviceInfo=device
        ),
        "TrainingSession.fromIr: ir is not an Ir, got 3": lambda: popart.TrainingSession.fromIr(3, device),
        "TrainingSession.fromIr: deviceInfo is not": lambda: popart.TrainingSession.fromIr(ir, "cpu"),  # type: ignore[arg-type]
        "run: stepio is not a PyStepIO": lambda: session.run({}),
        "run: no such stream, got 'z', expected one of 'x', 'y'": lambda: session.run(
            popart.PyStepIO({"z": 1}, {})
        ),
        "run_with_outputs: outputs do not match": lambda: session.run(popart.PyStepIO({x.tensor_id: 1}, {})),
        "PyStepIO: inputs is not a mapping": lambda: popart.PyStepIO(3, {}),  # type: ignore[arg-type]
        "setRandomSeed: got 3": lambda: session.setRandomSeed(3),
        "getCycleCount: a simulator": lambda: session.getCycleCount(),
        "Session: option accum|options: accum": lambda: setattr(ir.options, "accumulationFactor", 2),
    }
    for text, call in calls.items():
        with pytest.raises(errors.Error, match=f"^({text})"):
            call()
