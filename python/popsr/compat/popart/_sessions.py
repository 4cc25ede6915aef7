"""PopART's own sessions, of a program that is already written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from popsr._host.arguments import is_a, read_a, read_bool, read_mapping
from popsr._popart.data_flow import DataFlow
from popsr._session.devices import DeviceInfo
from popsr._text.shown import shown
from popsr.errors import ArgumentTypeError, SessionError, UnknownNameError, UnsupportedError
from popsr.io import PyWeightsIO, save_onnx
from popsr.ir import Ir
from popsr.options import Options
from popsr.session import Session

__all__ = ["InferenceSession", "PyStepIO", "TrainingSession"]

S = TypeVar("S", bound="_Session")


class PyStepIO:
    """Arrays for a run.

    Args:
        inputs: data by name of host-to-device stream.
        outputs: arrays by name of device-to-host stream; see ``session.initAnchorArrays``.
    """

    def __init__(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        """Keep the arrays; they are checked when they are used.

        Raises:
            ArgumentTypeError: not mappings.
        """
        self.inputs = dict(read_mapping("PyStepIO", "inputs", inputs))
        self.outputs = dict(read_mapping("PyStepIO", "outputs", outputs))

    def enableRuntimeAsserts(self, on: bool) -> None:  # noqa: N802
        """Accepted: arrays are always checked."""
        read_bool("enableRuntimeAsserts: on", on)


class _Session:
    """A session of PopART around a ``popsr.Session``, which is attached from ``prepareDevice`` on."""

    def __init__(self, fnModel: Any = None, *args: Any, **kwargs: Any) -> None:
        """Refused: sessions of models of ONNX, which PopART's Builder makes.

        Raises:
            UnsupportedError: always.
        """
        del args, kwargs
        name = type(self).__name__
        raise UnsupportedError(
            f"{name}: sessions of ONNX models are not supported, got fnModel {shown(fnModel)}, expected "
            f"{name}.fromIr(ir, deviceInfo) or popxl.Session(ir)"
        )

    @classmethod
    def fromIr(cls: type[S], ir: Any, deviceInfo: DeviceInfo, name: str = "fromIr") -> S:  # noqa: N802
        """The session of a program.

        Args:
            ir: the Ir, or its ``_pb_ir``.
            deviceInfo: the device: the simulator.
            name: ignored.
        Raises:
            ArgumentTypeError: something else than an Ir, or than a device.
            Error: as ``popsr.Session``.
        """
        del name
        where = f"{cls.__name__}.fromIr"
        program = ir if is_a(ir, Ir) else _program_of(ir)
        if program is None:
            raise ArgumentTypeError(
                f"{where}: ir is not an Ir, got {shown(ir)}, expected an Ir or its _pb_ir"
            )
        read_a(f"{where}: deviceInfo", deviceInfo, DeviceInfo)
        session = object.__new__(cls)
        session._session = Session(program)
        session._by_name = {
            plan.name: plan.stream
            for plan in (*session._session._runner.inputs, *session._session._runner.outputs)
        }
        return session

    _session: Session
    _by_name: dict[str, Any]

    @property
    def replicationFactor(self) -> int:  # noqa: N802
        """Number of replicas."""
        return self._session.ir.replication_factor

    @property
    def accumulationFactor(self) -> int:  # noqa: N802
        """1: programs accumulate explicitly."""
        return 1

    @property
    def dataFlow(self) -> DataFlow:  # noqa: N802
        """Elements that a stream carries in a run, and the streams to the host."""
        return DataFlow(self._session.ir.num_host_transfers, list(self.initAnchorArrays()))

    def prepareDevice(self, loadEngine: bool = True) -> None:  # noqa: N802
        """Attach, and upload all variables.

        Args:
            loadEngine: accepted.
        Raises:
            ArgumentTypeError: it is not a bool.
        """
        read_bool("prepareDevice: loadEngine", loadEngine)
        if not self._session.is_attached:
            self._session.__enter__()

    def loadEngineAndConnectStreams(self) -> None:  # noqa: N802
        """As ``prepareDevice``."""
        self.prepareDevice()

    def initAnchorArrays(self) -> dict[str, np.ndarray[Any, Any]]:  # noqa: N802
        """Arrays for what the program stores, by name of stream."""
        arrays = self._session.create_host_outputs()
        return {stream.tensor_id: array for stream, array in arrays.items()}

    def run(self, stepio: PyStepIO, debugName: str = "") -> None:
        """Run the program once.

        Args:
            stepio: arrays of all streams.
            debugName: ignored.
        Raises:
            ArgumentTypeError: not a PyStepIO.
            UnknownNameError: no stream in use has such a name.
            SessionError: before ``prepareDevice``.
            Error: as ``popsr.Session.run_with_outputs``.
        """
        del debugName
        read_a("run: stepio", stepio, PyStepIO)
        self._require_prepared("run")
        inputs = {self._stream(name): data for name, data in stepio.inputs.items()}
        outputs = {self._stream(name): array for name, array in stepio.outputs.items()}
        self._session.run_with_outputs(inputs, outputs)

    def weightsFromHost(self) -> None:  # noqa: N802
        """Upload all variables.

        Raises:
            SessionError: before ``prepareDevice``.
        """
        self._require_prepared("weightsFromHost")
        self._session.weights_from_host()

    def weightsToHost(self) -> None:  # noqa: N802
        """Download all variables.

        Raises:
            SessionError: before ``prepareDevice``.
        """
        self._require_prepared("weightsToHost")
        self._session.weights_to_host()

    def readWeights(self, weightsIo: PyWeightsIO) -> None:  # noqa: N802
        """As ``popsr.Session.read_weights``."""
        self._session.read_weights(weightsIo)

    def writeWeights(self, weightsIo: PyWeightsIO) -> None:  # noqa: N802
        """As ``popsr.Session.write_weights``."""
        self._session.write_weights(weightsIo)

    def modelToHost(self, fn: str | os.PathLike[str]) -> None:  # noqa: N802
        """Save all variables as a model of ONNX; see ``popsr.io.save_onnx``."""
        save_onnx(self._session, fn)

    def resetHostWeights(  # noqa: N802
        self,
        modelProtoOrFilename: str | os.PathLike[str],
        ignoreWeightsInModelWithoutCorrespondingHostWeight: bool = False,
    ) -> None:
        """Set all variables from a file; see ``popsr.Session.reset_host_weights``.

        Args:
            modelProtoOrFilename: name of the file.
            ignoreWeightsInModelWithoutCorrespondingHostWeight: accepted: such weights are always ignored.
        """
        read_bool("resetHostWeights: ignore", ignoreWeightsInModelWithoutCorrespondingHostWeight)
        self._session.reset_host_weights(modelProtoOrFilename)

    def setRandomSeed(self, seedValue: int) -> None:  # noqa: N802
        """Refused: the seed is decided when a session is made.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            f"setRandomSeed: got {shown(seedValue)}, expected ir.options.seed to be set before the session is made"
        )

    def getCycleCount(self, id: str = "") -> int:  # noqa: N802
        """As ``popsr.Session.getCycleCount``: an error."""
        return self._session.get_cycle_count(id)

    def _stream(self, name: Any) -> Any:
        if name not in self._by_name:
            known = ", ".join(map(repr, self._by_name))
            raise UnknownNameError(f"run: no such stream, got {shown(name)}, expected one of {known}")
        return self._by_name[name]

    def _require_prepared(self, where: str) -> None:
        if not self._session.is_attached:
            raise SessionError(
                f"{where}: no device is prepared, got a detached session, expected session.prepareDevice()"
            )


class InferenceSession(_Session):
    """A session of a program: ``InferenceSession.fromIr(ir, deviceInfo)``."""


class TrainingSession(_Session):
    """A session of a program: ``TrainingSession.fromIr(ir, deviceInfo)``."""


def _program_of(private: Any) -> Ir | None:
    """The Ir whose ``_pb_ir`` it is."""
    options = private.getSessionOptions() if hasattr(private, "getSessionOptions") else None
    program = options._ir if isinstance(options, Options) else None
    return program if isinstance(program, Ir) else None
