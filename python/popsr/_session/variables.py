"""The variables of a session: reading and writing by the host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np

from popsr._program.tensor import Constant, Tensor, Variable
from popsr._session.host_copies import HostCopies
from popsr._session.host_data import constant_data, variable_data
from popsr._session.lints import GroupLint
from popsr._session.ranks.rows import rows_for_writer
from popsr._session.rows import Rows, as_rows, keeps_all_replicas
from popsr._session.state import SessionState
from popsr._session.weights_io import PyWeightsIO
from popsr._support.host.arguments import is_a, read_a, read_choice, read_items, read_mapping
from popsr._support.records import Divergence
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, SessionError
from popsr.replicas import Partition
from popsr.utils import HostScalarTensor

__all__ = ["VariableMirror"]


class VariableMirror:
    """The host copies of a session's variables: read, written, uploaded and downloaded.

    Args:
        state: the session's.
        group_lint: reports groups whose members differ where one of them is read.
    """

    def __init__(self, state: SessionState, group_lint: GroupLint) -> None:
        """Starts with the data that the variables were made with."""
        self._state = state
        self.copies = HostCopies(state.ir, state.core, state.variables)
        self.group_lint = group_lint

    def weights_to_host(self) -> None:
        """See :meth:`popsr.Session.weights_to_host`."""
        self._state.require_attached("weights_to_host")
        with self._state.lock:
            self._state.require_idle("weights_to_host")
            if self.copies.read_only is not None:
                raise SessionError(
                    f"weights_to_host: '{self.copies.read_only.id}' is a read-only memory-mapped array, "
                    "expected a writable one"
                )
            self.download("weights_to_host", may_raise=True)

    def weights_from_host(self) -> None:
        """See :meth:`popsr.Session.weights_from_host`."""
        self._state.require_attached("weights_from_host")
        with self._state.lock:
            self._state.require_idle("weights_from_host")
            self.copies.upload()
            self._state.set_stale(False)

    def get_tensors_data(
        self, tensors: Iterable[Variable | Constant], *, replicas: Literal["group", "all"] = "group"
    ) -> dict[Constant | Variable, np.ndarray[Any, Any]]:
        """See :meth:`popsr.Session.get_tensors_data`."""
        read_choice("get_tensor_data", "replicas", replicas, ("group", "all"))
        if not is_a(tensors, Iterable) or is_a(tensors, Tensor):
            raise ArgumentTypeError(f"get_tensors_data: tensors are not a sequence, got {shown(tensors)}")
        tensors = read_items("get_tensors_data", "tensors", tensors, kind="tensors")
        for tensor in tensors:
            if not isinstance(tensor, (Variable, Constant)):
                raise ArgumentTypeError(
                    f"get_tensor_data: no variable or constant, got {shown(tensor)}, expected a Variable or Constant"
                )
            self.require_own("get_tensor_data", tensor)
        with self._state.lock:
            if replicas == "all":
                self._state.require_idle("get_tensor_data")
                return {tensor: self._data_of_replicas(tensor) for tensor in tensors}
            variables = [tensor for tensor in tensors if isinstance(tensor, Variable)]
            newest = bool(variables) and self._refresh("get_tensor_data", variables)
            return {tensor: self._data_of(tensor, newest) for tensor in tensors}

    def write_variables_data(self, tensors: Mapping[Variable, HostScalarTensor]) -> None:
        """See :meth:`popsr.Session.write_variables_data`."""
        tensors = read_mapping("write_variables_data", "tensors", tensors)
        for tensor in tensors:
            if isinstance(tensor, Variable):
                self.require_own("write_variable_data", tensor)
        arrays = {tensor: variable_data(tensor, data) for tensor, data in tensors.items()}
        self._write("write_variable_data", [(t, as_rows(array, t), False) for t, array in arrays.items()])

    def read_weights(self, io: PyWeightsIO) -> None:
        """See :meth:`popsr.Session.read_weights`."""
        buffers = self._buffers("read_weights", io)
        with self._state.lock:
            newest = self._refresh("read_weights", [variable for variable, _, _ in buffers])
            for variable, rows, per_replica in buffers:
                self.copies.read(variable, rows, per_replica, newest)

    def write_weights(self, io: PyWeightsIO) -> None:
        """See :meth:`popsr.Session.write_weights`."""
        self._write("write_weights", self._buffers("write_weights", io))

    def storage(self, tensor: Variable) -> Partition:
        """See :meth:`popsr.Session.storage`."""
        read_a("storage: tensor", tensor, Variable)
        self.require_own("storage", tensor)
        return self._state.core.storage(tensor._id)

    def current_rows(self, variable: Variable) -> np.ndarray[Any, Any]:
        """The newest value, one row per group, of ``shape_on_host``; callers must not write to it."""
        with self._state.lock:
            newest = self._refresh("save", [variable], save=True)
            rows = None if newest else self.copies.group_rows(variable)
            if rows is None:
                rows = self.copies.room(variable, False)
                self.copies.read(variable, rows, False, newest)
            return np.asarray(rows).reshape(variable.shape_on_host)

    def current_parts(self, variable: Variable) -> Iterable[np.ndarray[Any, Any]]:
        """The data of ``current_rows`` in order, never copied: valid while the caller holds the lock.

        With other ranks rank 0 gets them, see ``rank_rows``.
        """
        with self._state.lock:
            newest = self._refresh("save", [variable], save=True)
            if not newest and not self.copies.on_device(variable):
                return [self.current_rows(variable)]
            pieces = self._state.core.row_pieces(variable._id)
            if self._state.ranks is not None:
                return rows_for_writer(self._state.ranks, pieces)
            return [data for _, _, data in pieces if data is not None]

    def set_rows(self, arrays: Mapping[Variable, np.ndarray[Any, Any]]) -> None:
        """Set variables from checked data of ``shape_on_host``, whatever their retrieval mode."""
        self._write(
            "load", [(variable, as_rows(array, variable), False) for variable, array in arrays.items()]
        )

    def _data_of(self, tensor: Tensor, newest: bool) -> np.ndarray[Any, Any]:
        if not isinstance(tensor, Variable):
            return constant_data(tensor)
        mapped = self.copies.mapped(tensor)
        if mapped is not None and not (newest and self._state.core.is_written(tensor._id)):
            return mapped
        per_replica = keeps_all_replicas(tensor)
        rows = self.copies.room(tensor, per_replica)
        self.copies.read(tensor, rows, per_replica, newest)
        return rows if per_replica else rows.reshape(tensor.shape_on_host)

    def _data_of_replicas(self, tensor: Tensor) -> np.ndarray[Any, Any]:
        """A row per replica, of what the device holds."""
        if not isinstance(tensor, Variable):
            return np.repeat(constant_data(tensor)[np.newaxis], self._state.ir.replication_factor, axis=0)
        rows = self.copies.room(tensor, True)
        self.copies.read(tensor, rows, True, newest=True)
        return rows

    def _buffers(self, where: str, io: PyWeightsIO) -> list[Rows]:
        if not isinstance(io, PyWeightsIO):
            raise ArgumentTypeError(f"{where}: io is not a PyWeightsIO, got {shown(io)}")
        buffers = io._buffers(where, self._state.variables, reading=where == "read_weights")
        for variable, _, _ in buffers:
            self.require_own(where, variable)
        return buffers

    def _write(self, where: str, rows: list[Rows]) -> None:
        with self._state.lock:
            self._state.require_idle(where)
            for variable, _, _ in rows:
                mapped = self.copies.mapped(variable)
                if mapped is not None and not mapped.flags.writeable:
                    raise SessionError(f"{where}: '{variable.id}' is a read-only memory-mapped array")
            self._refresh(where)  # others keep their values
            self.copies.write(rows)

    def download(self, where: str, *, may_raise: bool) -> None:
        """Download all variables, and report groups whose members differ."""
        unequal = self.copies.unequal()
        for variable, divergence in unequal.items():
            self.group_lint.report(where, variable, divergence, asked=False, may_raise=may_raise)
        self.copies.download(unequal)
        self._state.set_stale(False)

    def _refresh(self, where: str, variables: Iterable[Variable] = (), *, save: bool = False) -> bool:
        """Report variables whose groups are not equal, then download what is newer.

        Args:
            where: what needs it.
            variables: those that the host wants to see.
            save: it saves all of them, one value per group also of those that keep all replicas.
        Returns:
            True when the device has newer values that could not be downloaded, and has to be asked.
        """
        unequal: dict[Variable, Divergence] | None = None
        newer = self._state.stale and self._state.depth > 0
        if newer:
            self._state.require_idle(where)
            if self.copies.read_only is None:
                unequal = self.copies.unequal()
        for variable in variables:
            if not save and keeps_all_replicas(variable):
                continue
            if unequal is not None and not keeps_all_replicas(variable):
                divergence = unequal.get(variable)
            else:
                divergence = self.copies.divergence(variable, newer)
            if divergence is not None:
                self.group_lint.report(where, variable, divergence, asked=not save)
        if unequal is not None:
            self.copies.download(unequal)
            self._state.set_stale(False)
        return newer and unequal is None

    def require_own(self, where: str, tensor: Tensor) -> None:
        """Refuse tensors of other programs, and variables that are newer than the session."""
        if tensor._ir is not self._state.ir:
            raise SessionError(
                f"{where}: tensor of another Ir, got {shown(tensor)} of {shown(tensor._ir)}, "
                f"expected {shown(self._state.ir)}"
            )
        if isinstance(tensor, Variable) and tensor not in self._state.variables:
            raise SessionError(
                f"{where}: variable is newer than the session, got {shown(tensor)}, expected one of its program"
            )
