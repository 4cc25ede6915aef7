"""PopART's own sessions: of a model of ONNX, or of a program that is already written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from popsr._program.ir import Ir
from popsr._program.options.options import Options
from popsr._session.devices import DeviceInfo
from popsr._session.session import Session
from popsr._support.host.arguments import is_a, read_a, read_bool, read_int, read_items, read_text
from popsr._support.lazy import LazyModule
from popsr._support.text.shown import shown
from popsr.compat._objects.data_flow import DataFlow
from popsr.compat._objects.types import TensorInfo
from popsr.compat.popart._optimisers import Optimizer
from popsr.compat.popart._settings import InputShapeInfo
from popsr.compat.popart._step_io import PyStepIO, PyStepIOCallback
from popsr.errors import (
    ArgumentTypeError,
    AttributeValueError,
    SessionError,
    UnknownNameError,
    UnsupportedError,
)
from popsr.io import PyWeightsIO, save_onnx

if TYPE_CHECKING:
    from popsr.compat.popart import _sources
    from popsr.compat.popart._sources import ModelSource
else:  # onnx is read when it is needed
    _sources = LazyModule("popsr.compat.popart._sources")

__all__ = ["InferenceSession", "TrainingSession"]

S = TypeVar("S", bound="_Session")


class _Session:
    """A session of PopART around a ``popsr.Session``, which is attached from ``prepareDevice`` on."""

    @classmethod
    def fromIr(cls: type[S], ir: Any, deviceInfo: DeviceInfo, name: str = "fromIr") -> S:
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
        made = object.__new__(cls)
        made._open(program, None)
        return made

    _session: Session
    _source: ModelSource | None
    _by_name: dict[str, Any]
    _is_filled: bool

    def _read(self, loss: tuple[str, Optimizer] | None, *given: Any) -> None:
        """Begin with a model, its loss and optimiser, and the parameters of both kinds of sessions."""
        source = _sources.ModelSource(type(self).__name__, loss, *given)
        self._open(source.program.ir, source)

    def _open(self, program: Ir, source: ModelSource | None) -> None:
        """Begin with a program, and the model that it was read from."""
        self._session = session = Session(program)
        self._source, self._is_filled = source, source is None
        self._by_name = {plan.name: plan.stream for plan in session._access.streams}

    @property
    def replicationFactor(self) -> int:
        """Number of replicas."""
        return self._session.ir.replication_factor

    @property
    def accumulationFactor(self) -> int:
        """Micro batches of a batch; 1 of a program, which accumulates explicitly."""
        return 1 if self._source is None else self._source.program.counts[1]

    @property
    def dataFlow(self) -> DataFlow:
        """Batches and anchors; of a program, elements that a stream carries, and the streams to the host."""
        if self._source is not None:
            return self._source.flow
        return DataFlow(self._session.ir.num_host_transfers, list(self.initAnchorArrays()))

    def prepareDevice(self, loadEngine: bool = True, err: Any = None) -> None:
        """Attach, and upload all variables.

        Args:
            loadEngine: accepted.
            err: accepted: nothing is compiled that may not fit.
        Raises:
            ArgumentTypeError: it is not a bool.
        """
        del err
        read_bool("prepareDevice: loadEngine", loadEngine)
        if not self._session.is_attached:
            self._session.__enter__()

    def loadEngineAndConnectStreams(self) -> None:
        """As ``prepareDevice``."""
        self.prepareDevice()

    def initAnchorArrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Arrays for all anchors by id; for what a program stores, by name of stream."""
        if self._source is not None:
            return self._source.step.arrays()
        arrays = self._session.create_host_outputs()
        return {stream.tensor_id: array for stream, array in arrays.items()}

    def run(self, *args: Any, **named: Any) -> None:
        """Run a step: ``run(stepio, debugName="")``; a program runs once.

        ``run(programHandle, stepio, debugName="")`` takes the empty handle only.

        Args:
            *args: the arrays of the step, and a name, which is ignored.
            **named: the same by name.
        Raises:
            ArgumentTypeError: not a PyStepIO.
            UnknownNameError: arrays of other inputs or anchors than the session's.
            SessionError: before ``prepareDevice``, or before the first ``weightsFromHost`` of a model that trains.
            Error: as ``popsr.Session.run_with_outputs``.
        """
        values = list(args)
        if isinstance(values and values[0], str) or "programHandle" in named:
            _refuse_handle(named.pop("programHandle", None) or values.pop(0))
        stepio: Any = named["stepio"] if "stepio" in named else values[0] if values else None
        kinds = (PyStepIO,) if self._source is None else (PyStepIO, PyStepIOCallback)
        if not is_a(stepio, kinds):
            raise ArgumentTypeError(
                f"run: stepio is not a PyStepIO, got {shown(stepio)}, expected a PyStepIO"
            )
        self._require_prepared("run")
        if self._source is not None:
            if not self._is_filled and self._source.optimizer is not None and self._source.program.variables:
                raise SessionError(
                    "run: no weights on the device, got a new session, expected session.weightsFromHost()"
                )
            self._source.run(self._session, stepio)
            return
        inputs = {self._stream(name): data for name, data in stepio.inputs.items()}
        outputs = {self._stream(name): array for name, array in stepio.outputs.items()}
        self._session.run_with_outputs(inputs, outputs)

    def weightsFromHost(self) -> None:
        """Upload all variables.

        Raises:
            SessionError: before ``prepareDevice``.
        """
        self._require_prepared("weightsFromHost")
        self._session.weights_from_host()
        self._is_filled = True

    def weightsToHost(self) -> None:
        """Download all variables.

        Raises:
            SessionError: before ``prepareDevice``.
        """
        self._require_prepared("weightsToHost")
        self._session.weights_to_host()

    def readWeights(self, weightsIo: PyWeightsIO) -> None:
        """As ``popsr.Session.read_weights``."""
        self._session.read_weights(weightsIo)

    def writeWeights(self, weightsIo: PyWeightsIO) -> None:
        """As ``popsr.Session.write_weights``."""
        if self._source is not None:
            names = [key for key in getattr(weightsIo, "_given", ()) if isinstance(key, str)]
            self._source.check_writes("writeWeights", names)
        self._session.write_weights(weightsIo)

    def modelToHost(self, fn: str | os.PathLike[str]) -> None:
        """Save the model with its newest weights; of a program the variables, see ``popsr.io.save_onnx``."""
        if self._source is None:
            save_onnx(self._session, fn)
        else:
            self._source.save(self._session, fn)

    def resetHostWeights(
        self,
        modelProtoOrFilename: str | os.PathLike[str] | bytes,
        ignoreWeightsInModelWithoutCorrespondingHostWeight: bool = False,
    ) -> None:
        """Set all variables from a file; see ``popsr.Session.reset_host_weights``.

        Args:
            modelProtoOrFilename: name of the file, or bytes of a model.
            ignoreWeightsInModelWithoutCorrespondingHostWeight: leave out initializers that are no variables, as
                sessions of programs always do.
        """
        ignore = read_bool("resetHostWeights: ignore", ignoreWeightsInModelWithoutCorrespondingHostWeight)
        if self._source is None:
            self._session.reset_host_weights(modelProtoOrFilename)  # type: ignore[arg-type] # checked there
        else:
            self._source.reset(self._session, modelProtoOrFilename, ignore)

    def setRandomSeed(self, seedValue: int) -> None:
        """Begin again with the random numbers of a seed: of dropout, random ops, stochastic rounding, synthetic data.

        Programs decide their seed when a session is made.

        Raises:
            UnsupportedError: a session of a program.
        """
        if self._source is None:
            raise UnsupportedError(
                f"setRandomSeed: got {shown(seedValue)}, expected ir.options.seed to be set before the session is made"
            )
        seed = read_int("setRandomSeed: seedValue", seedValue, 0, 2**64 - 1)
        self._session = self._source.reseeded(self._session, seed)
        self._session.step = 0

    def getRandomSeed(self) -> int:
        """The seed."""
        return int(self._session.ir.options.seed if self._source is None else self._source.seed)

    def getRNGState(self) -> list[int]:
        """Seed and number of the next run, on which all random numbers depend."""
        return [self.getRandomSeed(), self._session.step]

    def setRNGState(self, rngValue: Sequence[int]) -> None:
        """Go on from what ``getRNGState`` returned."""
        state = read_items("setRNGState", "rngValue", rngValue)
        if len(state) != 2:
            raise AttributeValueError(
                f"setRNGState: rngValue: got {shown(state)}, expected a seed and a step"
            )
        seed, step = (read_int("setRNGState: rngValue", each, 0, 2**64 - 1) for each in state)
        if seed != self.getRandomSeed():
            self.setRandomSeed(seed)
        self._session.step = step

    def updateOptimizerFromHost(self, optimizer: Optimizer) -> None:
        """Take the values of an optimiser that are not constant, for the next run.

        Raises:
            SessionError: something else differs, or the session has no optimiser.
        """
        self._model("updateOptimizerFromHost").update_optimizer(self._session, optimizer)

    def getInfo(self, id: str) -> TensorInfo:
        """Element type and shape of a tensor on a replica."""
        return self._model("getInfo").info("getInfo", id)

    def getTensorIds(self) -> list[str]:
        """Ids of the model's tensors, its variables and the optimiser's states."""
        return list(self._model("getTensorIds").tensors())

    def getIr(self) -> Ir:
        """The program."""
        return self._session.ir

    def updateEngineCache(self) -> None:
        """Accepted: there is nothing to cache."""

    def broadcastWeights(self, rootRank: int = 0) -> None:
        """Accepted: all replicas are of this process."""
        read_int("broadcastWeights: rootRank", rootRank, 0, 0)

    def _model(self, where: str) -> ModelSource:
        if self._source is None:
            raise SessionError(
                f"{where}: a session of a program, got fromIr, expected a session of a model of ONNX"
            )
        return self._source

    def getCycleCount(self, id: str = "") -> int:
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
    """A session that runs a model, or a program: ``InferenceSession.fromIr(ir, deviceInfo)``.

    Args:
        fnModel: bytes of a model, as ``Builder.getModelProto`` returns them, or its file.
        dataFlow: batches of a step and anchors.
        deviceInfo: the device: the simulator.
        inputShapeInfo: types and shapes of inputs that the model leaves open.
        patterns: recorded nowhere.
        userOptions: session options.
        name: ignored.
    """

    def __init__(
        self,
        fnModel: Any = None,
        dataFlow: Any = None,
        deviceInfo: Any = None,
        inputShapeInfo: InputShapeInfo | None = None,
        patterns: Any = None,
        userOptions: Options | None = None,
        name: str = "inference",
    ) -> None:
        """Read the model.

        Raises:
            ArgumentTypeError: a parameter is missing, or of another type.
            Error: as ``popsr.bridge.onnx.load``.
        """
        read_text("InferenceSession: name", name)
        self._read(None, fnModel, dataFlow, deviceInfo, inputShapeInfo, patterns, userOptions)


class TrainingSession(_Session):
    """A session that trains a model, or runs a program: ``TrainingSession.fromIr(ir, deviceInfo)``.

    Each batch sums the gradients of the loss over its micro batches and over the replicas that share a weight, and
    updates all weights that the loss depends on.

    Args:
        fnModel: bytes of a model, as ``Builder.getModelProto`` returns them, or its file.
        dataFlow: batches of a step and anchors.
        loss: id of the loss, which is one number.
        optimizer: the optimiser.
        deviceInfo: the device: the simulator.
        inputShapeInfo: types and shapes of inputs that the model leaves open.
        patterns: recorded nowhere.
        userOptions: session options.
        name: ignored.
    """

    def __init__(
        self,
        fnModel: Any = None,
        dataFlow: Any = None,
        loss: Any = None,
        optimizer: Any = None,
        deviceInfo: Any = None,
        inputShapeInfo: InputShapeInfo | None = None,
        patterns: Any = None,
        userOptions: Options | None = None,
        name: str = "training",
    ) -> None:
        """Read the model.

        Raises:
            ArgumentTypeError: a parameter is missing, or of another type.
            Error: as ``popsr.bridge.onnx.load`` and ``popsr.transforms.autodiff``.
        """
        where = "TrainingSession"
        read_text(f"{where}: name", name)
        trained = read_text(f"{where}: loss", loss), read_a(f"{where}: optimizer", optimizer, Optimizer)
        self._read(trained, fnModel, dataFlow, deviceInfo, inputShapeInfo, patterns, userOptions)


_REFUSED = {
    "compileAndExport": "a simulator compiles no executable",
    "saveExecutable": "a simulator compiles no executable",
    "saveVariables": "modelToHost saves all variables",
    "loadExecutable": "a simulator compiles no executable",
    "updateExternallySavedTensorLocations": "modelToHost keeps data in the model",
    "getSummaryReport": "session.getIr() has the program, popsr.Session.stats its kernels",
    "getReport": "session.getIr() has the program, popsr.Session.stats its kernels",
    "getSerializedGraph": "session.getIr() has the program",
    "connectStreamToCallback": "PyStepIOCallback calls functions for data",
}


def _refused(name: str, reason: str) -> Any:
    def refuse(_self: _Session, *args: Any, **named: Any) -> None:
        raise UnsupportedError(
            f"{name}: no device, got {shown([*args, *named.values()])}, expected none: {reason}"
        )

    refuse.__name__, refuse.__doc__ = name, f"Refused: {reason}."
    return refuse


for _name, _reason in _REFUSED.items():
    setattr(_Session, _name, _refused(_name, _reason))


def _refuse_handle(handle: Any) -> None:
    if handle != "":
        raise UnsupportedError(f"run: programs by handle, got {shown(handle)}, expected run(stepio)")


def _program_of(private: Any) -> Ir | None:
    """The Ir whose ``_pb_ir`` it is."""
    options = private.getSessionOptions() if hasattr(private, "getSessionOptions") else None
    program = options._ir if isinstance(options, Options) else None
    return program if isinstance(program, Ir) else None
