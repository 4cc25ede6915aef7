"""Sessions that know their streams and their state by name, and write it to checkpoints."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np

from popsr._program.building.location import warn_user
from popsr._program.building.transaction import transactional
from popsr._program.streams import DeviceToHostStream, HostToDeviceStream
from popsr._program.tensor import Tensor, Variable
from popsr._session.session import Session, h2dStreamBufferMaps
from popsr._support.host.arguments import is_a, read_choice, read_int, read_mapping
from popsr._support.host.files import file_errors
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.addons import _checkpoint_folder as files
from popsr.addons.named_tensors import NamedTensorData, NamedTensors
from popsr.addons.streams import InputStreams, OutputStreams
from popsr.errors import (
    ArgumentTypeError,
    AttributeValueError,
    CheckpointError,
    Error,
    SessionError,
    UnsupportedError,
)

__all__ = [
    "ReportMissingMethods",
    "TaskSession",
    "initialise_memmap_dir_from_checkpoint",
    "write_variables_pb",
]

ReportMissingMethods = Literal["none", "warn", "error"]
"""Treatment of names that only one side has."""

_STEP = "popsr_step"  # in session_info.json: the random numbers'


@public
def write_variables_pb(session: Session, weights: Mapping[Tensor, np.ndarray[Any, Any]]) -> None:
    """``session.write_variables_data``, under the name that the reference has for a detour around it.

    Args:
        session: the session.
        weights: data by variable.
    Raises:
        ArgumentTypeError: ``session`` is not a Session; otherwise as for ``write_variables_data``.
    """
    if not is_a(session, Session):
        raise ArgumentTypeError(f"write_variables_pb: session is not a Session, got {shown(session)}")
    session.write_variables_data(weights)  # type: ignore[arg-type] # it checks its keys


@public
def initialise_memmap_dir_from_checkpoint(
    checkpoint_dir: str | os.PathLike[str], memmap_dir: str | os.PathLike[str]
) -> None:
    """Copy the files of memory-mapped variables of a checkpoint to where ``VariableFactory`` looks for them.

    Args:
        checkpoint_dir: folder that ``save_checkpoint`` wrote.
        memmap_dir: folder that is given to ``init``; made if it is not there. Files of these names are replaced.
    Raises:
        FileError: there is no checkpoint, or a file cannot be copied.
        UnsupportedError: a folder on Weights & Biases.
    """
    where = "initialise_memmap_dir_from_checkpoint"
    source, target = files.read_folder(where, checkpoint_dir), files.read_folder(where, memmap_dir)
    files.names_in(where, source)
    with file_errors(where, "copy files to", target):
        target.mkdir(parents=True, exist_ok=True)
        for file in (source / files.MODEL).glob("*.npy"):
            shutil.copyfile(file, target / file.name)


@public
class TaskSession(Session):
    """A session with named streams, named state and checkpoints.

    Args:
        inputs: host-to-device streams; those without names get the names of the streams.
        outputs: device-to-host streams, likewise.
        state: the variables that are state: what checkpoints have.
        max_checkpoints: how many checkpoints are kept; the oldest of this session are deleted.
        *args: the program, and further arguments of ``popsr.Session``.
        **kwargs: likewise.

    Attributes:
        inputs: the named inputs.
        outputs: the named outputs.
        state: the tree of variables.
        max_checkpoints: how many checkpoints are kept.
        session_state: ``"steps"``, the number of runs, and what ``add_session_state_info`` added.
    """

    @transactional
    def __init__(
        self,
        inputs: InputStreams | Iterable[HostToDeviceStream],
        outputs: OutputStreams | Iterable[DeviceToHostStream],
        state: NamedTensors,
        max_checkpoints: int = 1,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Compile the program.

        Raises:
            ArgumentTypeError: something else than such streams, or than a tree of variables.
            SessionError: streams or variables of another Ir.
            AttributeValueError: ``max_checkpoints`` is not a positive int; otherwise as for ``popsr.Session``.
        """
        self.inputs = inputs if isinstance(inputs, InputStreams) else InputStreams.from_streams(inputs)
        self.outputs = outputs if isinstance(outputs, OutputStreams) else OutputStreams.from_streams(outputs)
        self.max_checkpoints = read_int("TaskSession: max_checkpoints", max_checkpoints, 1)
        if not is_a(state, NamedTensors):
            raise ArgumentTypeError(f"TaskSession: state is not a NamedTensors, got {shown(state)}")
        self.state = state
        self.session_state: dict[str, Any] = {"steps": 0}
        self._dataloader: Any = None
        self._checkpoints: list[Path] = []
        super().__init__(*args, **kwargs)
        for stream in (*self.inputs, *self.outputs):
            if stream._ir is not self.ir:
                raise SessionError(
                    f"TaskSession: stream of another Ir, got {shown(stream)}, expected {shown(self.ir)}"
                )
        self._state_variables()

    @property
    def dataloader(self) -> Any:
        """The data set of the program, saved in checkpoints. Settable to an object with ``save`` and ``resume``.

        ``save(path)`` writes its state to a file and ``resume(path)`` goes on from there. Reading it warns when
        there is none.

        Raises:
            AttributeValueError: when it is set to an object without them.
        """
        if self._dataloader is None:
            warn_user("TaskSession: no dataloader was set")
        return self._dataloader

    @dataloader.setter
    def dataloader(self, dl: Any) -> None:
        for name in ("save", "resume"):
            if not callable(getattr(dl, name, None)):
                raise AttributeValueError(
                    f"TaskSession: dataloader has no method {shown(name)}, got {shown(dl)}, expected one with it"
                )
        self._dataloader = dl

    def add_session_state_info(self, info: dict[str, Any]) -> None:
        """Add what checkpoints should say besides the variables.

        Args:
            info: by name, what JSON can say; ``"steps"`` sets the number of runs.
        Raises:
            ArgumentTypeError: not a mapping, a name that is not a str, or a value that JSON has no text for.
            AttributeValueError: ``"steps"`` is not an int of 0 or more.
        """
        where = "add_session_state_info"
        info = dict(read_mapping(where, "info", info))
        if not all(isinstance(name, str) for name in info):
            raise ArgumentTypeError(f"{where}: a name is not a str, got {list(info)}")
        read_int(f"{where}: steps", info.get("steps", 0), 0)
        try:
            json.dumps(info)
        except (TypeError, ValueError) as error:
            raise ArgumentTypeError(f"{where}: JSON has no text for a value, got {error}") from None
        self.session_state.update(info)

    def run(
        self,
        inputs: h2dStreamBufferMaps | None = None,
        downcast_inputs: bool = True,
        *,
        progress: bool | str = False,
    ) -> dict[DeviceToHostStream, np.ndarray[Any, Any]]:
        """As ``Session.run``, and count it.

        Args:
            inputs: as for ``Session.run``.
            downcast_inputs: as for ``Session.run``.
            progress: as for ``Session.run``.
        """
        results = super().run(inputs, downcast_inputs, progress=progress)
        self.session_state["steps"] += 1
        return results

    # State

    def get_named_tensors_data(self) -> NamedTensorData:
        """The newest data of the state, with the same names; see ``get_tensors_data``."""
        variables = self._state_variables()
        data = self.get_tensors_data(variables.values())
        return NamedTensorData.from_dict({name: data[variable] for name, variable in variables.items()})

    def load_from_session(self, src: TaskSession, report_missing: ReportMissingMethods = "none") -> None:
        """Set the state from another session's, as far as names are in both; nothing is set if one does not fit.

        Args:
            src: the other session.
            report_missing: what to do with names that only one has: "none", "warn" or "error".
        Raises:
            ArgumentTypeError: ``src`` is not a TaskSession.
            SessionError: with "error", names differ.
            ShapeError, DTypeError: data does not fit.
        """
        where = "load_from_session"
        if not is_a(src, TaskSession):
            raise ArgumentTypeError(f"{where}: src is not a TaskSession, got {shown(src)}")
        ours, theirs = self._state_variables(), src._state_variables()
        common = _common(where, "src", ours, theirs, report_missing, SessionError)
        rows = {name: src._access.rows(theirs[name]) for name in common}
        for name, array in rows.items():
            files.check_type(where, name, array.dtype, array.shape, ours[name])
        self._access.set_rows({ours[name]: array for name, array in rows.items()})

    def _state_variables(self) -> dict[str, Variable]:
        """Variables by flat name."""
        result: dict[str, Variable] = {}
        for name, tensor in self.state.to_dict().items():
            if not isinstance(tensor, Variable):
                raise ArgumentTypeError(
                    f"TaskSession: state {shown(name)} is not a Variable, got {shown(tensor)}"
                )
            self._access.require_own("TaskSession", tensor)
            result[name] = tensor
        return result

    # Checkpoints

    def save_checkpoint(self, checkpoint_dir: str | os.PathLike[str]) -> None:
        """Write the state, the session's information and the data loader's to a folder.

        A checkpoint that is there is replaced when the new one is complete. Of the folders that this session wrote to
        only the last ``max_checkpoints`` stay: in others the checkpoint is deleted, and the folder if nothing else is
        in it. ``popsr.addons._checkpoint_folder`` says what the files are. Of several ranks rank 0 writes, its own
        information and data loader's.

        Args:
            checkpoint_dir: the folder; made if it is not there.
        Raises:
            FileError: a file cannot be written.
            UnsupportedError: a folder on Weights & Biases.
        """
        where = "save_checkpoint"
        folder = files.read_folder(where, checkpoint_dir)
        with (
            self._access.one_writer(where, folder) as is_writer,
            self._access.lock,
            ExitStack() as stack,
        ):
            info = {**self.session_state, _STEP: self.step}
            new = stack.enter_context(files.new_folder(where, folder, info)) if is_writer else None
            for name, variable in self._state_variables().items():
                mapped = self._access.is_mapped(variable)
                rows = self._access.rows(variable)
                if new is not None:
                    files.write_array(new, name, rows, raw=mapped)
            if new is not None and self._dataloader is not None:
                self._dataloader.save(str(new / files.DATALOADER))
        self._checkpoints = [*(each for each in self._checkpoints if each != folder), folder]
        while len(self._checkpoints) > self.max_checkpoints:
            oldest = self._checkpoints.pop(0)
            if is_writer:
                files.remove(where, oldest)

    def load_checkpoint(
        self,
        checkpoint_dir: str | os.PathLike[str],
        report_missing: ReportMissingMethods = "warn",
        skip_memmap: bool = False,
    ) -> None:
        """Set state, information and data loader from a folder, as far as names are in both.

        All data is read and checked before the first variable is set.

        Args:
            checkpoint_dir: folder that ``save_checkpoint`` wrote.
            report_missing: what to do with names that only one has: "none", "warn" or "error".
            skip_memmap: leave variables alone whose data here is a memory-mapped file.
        Raises:
            FileError: there is no checkpoint, or a file cannot be read.
            CheckpointError: a file is damaged; with "error", names differ.
            ShapeError, DTypeError: data does not fit.
            SessionError: the data of a variable is a read-only memory-mapped array.
            UnsupportedError: a folder on Weights & Biases.
        """
        where = "load_checkpoint"
        with self._access.together(where):
            folder = files.read_folder(where, checkpoint_dir)
            ours, stored = self._state_variables(), set(files.names_in(where, folder))
            skipped = {name for name, v in ours.items() if skip_memmap and self._access.is_mapped(v)}
            ours = {name: variable for name, variable in ours.items() if name not in skipped}
            common = _common(where, "the checkpoint", ours, stored - skipped, report_missing, CheckpointError)
            info = files.read_info(where, folder)
            try:
                step = read_int(f"{where}: {_STEP}", info.pop(_STEP, self.step), 0, 2**64 - 1)
            except Error as error:
                raise CheckpointError(str(error)) from None
            self._access.set_rows(
                {ours[name]: files.read_array(where, folder, name, ours[name]) for name in common}
            )
            self.session_state, self.step = info, step
            if (folder / files.DATALOADER).exists() and self.dataloader is not None:
                self.dataloader.resume(str(folder / files.DATALOADER))

    # Weights & Biases

    def wandb_histogram(self, name: str, step: int, data: np.ndarray[Any, Any]) -> NoReturn:
        """Refused: popsr does not write to Weights & Biases.

        Args:
            name: name of the histogram.
            step: its step.
            data: its data.
        Raises:
            UnsupportedError: always.
        """
        del step, data
        raise UnsupportedError(
            f"wandb_histogram: Weights & Biases is not supported, got {shown(name)}, "
            "expected the array to be passed to wandb.Histogram"
        )

    def wandb_variable_histograms(self, step: int = 0) -> NoReturn:
        """Refused: popsr does not write to Weights & Biases.

        Args:
            step: step of the histograms.
        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            f"wandb_variable_histograms: Weights & Biases is not supported, got step {shown(step)}, "
            "expected arrays of get_tensors_data to be passed to wandb.Histogram"
        )


def _common(
    where: str,
    there: str,
    ours: Collection[str],
    theirs: Collection[str],
    report: ReportMissingMethods,
    error: type[Error],
) -> list[str]:
    """Names that both have; what only one has is reported."""
    read_choice(where, "report_missing", report, ("none", "warn", "error"))
    missing, unknown = sorted(set(ours) - set(theirs)), sorted(set(theirs) - set(ours))
    if (missing or unknown) and report != "none":
        text = f"{where}: names differ, got {missing} that {there} lacks and {unknown} that the session lacks"
        if report == "error":
            raise error(text)
        warn_user(text)
    return [name for name in ours if name in theirs]
