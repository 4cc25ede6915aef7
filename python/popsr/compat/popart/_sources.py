"""The program of a session, and the data of its steps: written for popsr, or read from a model of ONNX."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from popsr._program.options.enums import ReductionType, SyntheticDataMode
from popsr._program.options.options import Options
from popsr._session.devices import DeviceInfo
from popsr._session.ranks.rows import one_writer
from popsr._session.session import Session
from popsr._support.host.arguments import is_a, read_a, read_int, read_path, read_text, require_known
from popsr._support.text.shown import shown
from popsr.compat._objects.data_flow import DataFlow, Patterns
from popsr.compat._objects.types import TensorInfo
from popsr.compat.popart._model import SEED, initializer_of, parse_model, weights_of
from popsr.compat.popart._optimisers import Optimizer
from popsr.compat.popart._program import Program, Training
from popsr.compat.popart._settings import InputShapeInfo
from popsr.compat.popart._step_io import PyStepIO, PyStepIOCallback, StepArrays
from popsr.errors import (
    ArgumentTypeError,
    AttributeValueError,
    ReplicaError,
    SessionError,
    UnsupportedError,
)
from popsr.io import load_onnx
from popsr.io._new_file import NewFile
from popsr.io._onnx.format import entries_of, set_entries
from popsr.io._reset import reset_host_weights
from popsr.io._settings import program_text, settings_text

__all__ = ["ModelSource"]

Array = np.ndarray[Any, Any]
_READ_HERE = (
    "enableReplicatedGraphs",
    "replicatedGraphCount",
    "globalReplicationFactor",
    "globalReplicaOffset",
    "enableGradientAccumulation",
    "accumulationFactor",
    "accumulationAndReplicationReductionType",
)
_PARAMETERS = {
    "fnModel": object,
    "dataFlow": DataFlow,
    "deviceInfo": DeviceInfo,
    "inputShapeInfo": InputShapeInfo,
    "patterns": Patterns,
    "userOptions": Options,
}
"""Parameters that sessions of both kinds have; the first three are needed."""


class ModelSource:
    """A model's program, with anchors, options and optimiser.

    Args:
        where: the session's class.
        loss: id of the loss, and the optimiser, of a training session.
        *given: values of ``_PARAMETERS``.
    """

    def __init__(self, where: str, loss: tuple[str, Optimizer] | None, *given: Any) -> None:
        """Read the model and write its program.

        Raises:
            ArgumentTypeError: a parameter is missing, or of another type.
            ReplicaError: replicas and options contradict each other, or a variable's groups.
            UnsupportedError: an option that has no meaning here and would change results.
        """
        for i, (value, (name, kind)) in enumerate(zip(given, _PARAMETERS.items(), strict=True)):
            if value is not None:
                read_a(f"{where}: {name}", value, kind)
            elif i < 3:
                raise ArgumentTypeError(f"{where}: {name} is missing, got None, expected a value for it")
        model, flow, _, shapes, _, set_options = given
        options: Options = Options() if set_options is None else set_options
        infos = {} if shapes is None else shapes._infos
        counts = flow.batchesPerStep(), _micro_batches(where, options), _replicas(where, options)
        if flow.batchesPerStep() < 1:
            raise AttributeValueError(f"{where}: dataFlow: batchesPerStep: got 0, expected 1 or more")
        self._proto, arrays = parse_model(where, model)
        self.flow: DataFlow = flow
        self._weights = weights_of(where, self._proto, arrays, counts[2])
        training = None if loss is None else Training(*loss, _takes_mean(options))
        self.optimizer = None if training is None else training.optimizer
        self.program = Program(where, self._proto, self._weights, flow.anchors(), counts, infos, training)
        for row in options._set_rows():
            if row.name not in _READ_HERE:
                setattr(self.program.ir.options, row.key, options._values[row.key])
        self.seed = options.seed
        self.step = StepArrays(self.program, flow, self._proto.graph.input)

    def run(self, session: Session, stepio: PyStepIO | PyStepIOCallback) -> None:
        """One step."""
        fed = bool(session.expected_inputs())
        rows = self.step.rows(stepio) if fed else {}
        if fed and SEED in self.program.inputs:
            rows[SEED] = self._random_bits(session.step)
        results = session.run(
            {self.program.inputs[name]: data for name, data in rows.items()}, downcast_inputs=False
        )
        self.step.put(stepio, {name: results[stream] for name, stream in self.program.outputs.items()})

    def _random_bits(self, step: int) -> Array:
        batches, micro, replicas = self.program.counts
        shape = batches * micro, replicas, 2
        bits = np.random.default_rng([self.seed, step]).integers(0, 2**32, shape, np.uint32)
        return bits.reshape(*(extent for extent in shape[:2] if extent > 1), 2)

    def reseeded(self, session: Session, seed: int) -> Session:
        """The session whose random numbers are of another seed: another one where not only inputs depend on it."""
        before, self.seed = self.seed, seed
        options = self.program.ir.options
        if seed == before or not (
            options.enable_stochastic_rounding or options.syntheticDataMode is not SyntheticDataMode.Off
        ):
            return session
        made = Session(self.program.ir, seed=seed)
        rows = {v: session._access.rows(v).copy() for v in session._access.variables}
        if session.is_attached:
            session.__exit__(None, None, None)
            made.__enter__()
        with made._access.lock:
            made._access.set_rows(rows)
            made.step = session.step
        return made

    # Weights

    def check_writes(self, where: str, names: Any) -> None:
        """Refuse new values of weights whose values are part of the program."""
        for name in names:
            if name in self.program.constants:
                raise UnsupportedError(
                    f"{where}: {shown(name)} is part of the program, got a new value, expected a model that has it"
                )

    def save(self, session: Session, path: Any) -> None:
        """Write the model with the newest values, and the optimiser's states."""
        with session._access.together("modelToHost"):
            self._save("modelToHost", session, path)

    def _save(self, where: str, session: Session, path: Any) -> None:
        target = read_path(where, path)
        model = type(self._proto)()
        model.CopyFrom(self._proto)
        by_name = {each.name: each for each in model.graph.initializer}
        for name, v in {**self.program.variables, **self.program.states}.items():
            made = by_name.get(name)
            if made is None:
                made = model.graph.initializer.add()
                set_entries(made, settings_text(v))
            settings = entries_of(made)
            rows = np.asarray(session._access.rows(v)).reshape(v.shape_on_host)
            made.CopyFrom(initializer_of(name, rows))
            set_entries(made, settings)
        set_entries(model, program_text(None, session.step))
        with one_writer(session._access.ranks, where, target, session.step) as is_writer:
            if not is_writer:
                return
            with NewFile(where, target) as file:
                file.write(model.SerializeToString())
                file.commit()

    def reset(self, session: Session, model: Any, ignore: bool) -> None:
        """Set variables from a model, which is bytes or a file.

        Raises:
            UnknownNameError: an initializer is not a variable, unless these are ignored.
        """
        if is_a(model, bytes):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "model.onnx"
                path.write_bytes(model)
                self.reset(session, path, ignore)
            return
        if not is_a(model, (str, os.PathLike)):
            raise ArgumentTypeError(
                f"resetHostWeights: not a model, got {shown(model)}, expected its bytes or file"
            )
        found = dict(load_onnx(model).items())
        known = {**self.program.variables, **self.program.states}
        if not ignore:
            require_known("resetHostWeights: weight of another model", found, known)
        changed = (
            n
            for n, value in self.program.constants.items()
            if n in found and not np.array_equal(found[n], value)
        )
        self.check_writes("resetHostWeights", changed)
        reset_host_weights(session, model, ignore_missing=True)

    # Optimiser and tensors

    def update_optimizer(self, session: Session, optimizer: Any) -> None:
        """Take the values of an optimiser that may change.

        Raises:
            SessionError: a value that is constant, or a formula, is another one.
        """
        where = "updateOptimizerFromHost"
        if self.optimizer is None:
            raise SessionError(f"{where}: an inference session, got an optimiser, expected a TrainingSession")
        read_a(f"{where}: optimizer", optimizer, Optimizer)
        if optimizer.structure() != self.optimizer.structure():
            raise SessionError(
                f"{where}: optimisers differ in more than values that may change, got {shown(optimizer.structure())}, "
                f"expected {shown(self.optimizer.structure())}"
            )
        numbers = {
            self.program.scalars[name]: np.float32(value) for name, value in optimizer.numbers().items()
        }
        session.write_variables_data(numbers)
        self.optimizer = optimizer

    def info(self, where: str, id_: str) -> TensorInfo:
        """Type and shape of a tensor on a replica."""
        known = self.tensors()
        require_known(f"{where}: no such tensor", [read_text(f"{where}: id", id_)], known)
        return TensorInfo(known[id_].dtype, known[id_].shape)

    def tensors(self) -> Mapping[str, Any]:
        """The tensors by id."""
        program = self.program
        return {**program.model.tensors, **program.outputs, **program.states, **program.variables}


def _takes_mean(options: Options) -> bool:
    """True if gradients are averaged, not summed."""
    reduction = ReductionType(options.accumulationAndReplicationReductionType)
    if reduction is ReductionType.NoReduction:
        raise UnsupportedError(
            "TrainingSession: accumulationAndReplicationReductionType, got NoReduction, expected Sum or Mean"
        )
    return reduction is ReductionType.Mean


def _replicas(where: str, options: Options) -> int:
    """The number of replicas that options say."""
    count = int(options.replicatedGraphCount)
    if count > 1 and not options.enableReplicatedGraphs:
        raise ReplicaError(
            f"{where}: replicated graphs are off, got replicatedGraphCount {count}, expected "
            "enableReplicatedGraphs = True"
        )
    wanted = {"globalReplicaOffset": 0}
    if options.enableDistributedReplicatedGraphs:
        wanted["globalReplicationFactor"] = count
    for name, value in wanted.items():
        if getattr(options, name) != value:
            raise ReplicaError(
                f"{where}: replicas of other processes, got {name} {getattr(options, name)}, expected {value}"
            )
    return count


def _micro_batches(where: str, options: Options) -> int:
    """Micro batches of a batch."""
    factor = read_int(f"{where}: accumulationFactor", options.accumulationFactor, 1)
    if factor > 1 and not options.enableGradientAccumulation:
        raise AttributeValueError(
            f"{where}: gradient accumulation is off, got accumulationFactor {factor}, expected "
            "enableGradientAccumulation = True"
        )
    if options.automaticLossScalingSettings.enabled:
        raise UnsupportedError(
            f"{where}: automaticLossScalingSettings, got enabled, expected lossScaling of the optimiser"
        )
    return factor
