"""The variables of a session: what the host reads and writes of them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from popsr import _core
from popsr._host.arguments import is_a, read_a, read_choice, read_items, read_mapping
from popsr._program.location import noted
from popsr._session.host_copies import HostCopies
from popsr._session.host_data import constant_data, require_variable, variable_data
from popsr._session.lints import GroupLint
from popsr._session.rows import Divergence, Rows, as_rows, keeps_all_replicas
from popsr._text.shown import shown
from popsr.errors import ArgumentTypeError, SessionError
from popsr.ir import Ir
from popsr.tensor import Constant, Tensor, Variable
from popsr.utils import HostScalarTensor

if TYPE_CHECKING:
    from popsr.io._weights_io import PyWeightsIO
    from popsr.replicas import Partition

__all__ = ["SessionVariables"]


class SessionVariables:
    """The half of ``Session`` that moves values of variables; the other half runs the program."""

    _ir: Ir
    _core: _core.Session
    _lock: threading.RLock
    _depth: int
    _popped: int
    _stale: bool
    _running: bool
    _variables: dict[Variable, None]
    _copies: HostCopies
    _group_lint: GroupLint
    _seeds_at: tuple[int, bool, str] | None

    @noted("reading variables")
    def weights_to_host(self) -> None:
        """Download all variables: the host copies become what the device holds, at no cost where that is possible.

        Writable memory-mapped data is written through and flushed.

        Raises:
            SessionError: not attached, or the data of a variable is a read-only memory-mapped array.
            ReplicaError: with ``strict``, a variable that is read one per group differs inside a group (lint L3).
        Warns:
            ReplicaWarning: one does, without.
        """
        self._require_attached("weights_to_host")
        with self._lock:
            self._require_idle("weights_to_host")
            if self._copies.read_only is not None:
                raise SessionError(
                    f"weights_to_host: '{self._copies.read_only.id}' is a read-only memory-mapped array, "
                    "expected a writable one"
                )
            self._download("weights_to_host", may_raise=True)

    @noted("writing variables")
    def weights_from_host(self) -> None:
        """Upload all variables; those that the device holds already cost nothing."""
        self._require_attached("weights_from_host")
        with self._lock:
            self._require_idle("weights_from_host")
            self._ir._restore_seeds(self._seeds_at)
            self._copies.upload()
            self._set_stale(False)

    def get_tensor_data(
        self, tensor: Variable | Constant, *, replicas: Literal["group", "all"] = "group"
    ) -> np.ndarray[Any, Any]:
        """A copy of the data of a variable or constant; downloads first when the device has newer data.

        Of a variable with memory-mapped data the result is the mapped array itself, unless ``replicas`` is "all".

        Args:
            tensor: the variable or constant.
            replicas: "group": one value per group, or what the variable's retrieval mode says. "all": the value that
                each replica's device holds now, attached or not, however the variable was made; the host copy stays
                as it is.
        Returns:
            ``shape_on_host``; for "all" ``(replicas, *shape)``, of a sharded variable the whole that each replica's
            shards make.
        Raises:
            ValueError: ``replicas`` is another word.
            ReplicaError: with ``strict``, a variable that is read one per group differs inside a group (lint L3).
        Warns:
            ReplicaWarning: it does, without.
        """
        return self.get_tensors_data([tensor], replicas=replicas)[tensor]

    @noted("reading variables")
    def get_tensors_data(
        self, tensors: Iterable[Variable | Constant], *, replicas: Literal["group", "all"] = "group"
    ) -> dict[Constant | Variable, np.ndarray[Any, Any]]:
        """Copies of the data of several variables and constants.

        Args:
            tensors: the variables and constants.
            replicas: as for ``get_tensor_data``.
        Raises:
            TypeError: something else than a variable or constant.
            ValueError: ``replicas`` is another word.
            ReplicaError: as for ``get_tensor_data``.
        """
        read_choice("get_tensor_data", "replicas", replicas, ("group", "all"))
        if not is_a(tensors, Iterable) or is_a(tensors, Tensor):
            raise ArgumentTypeError(f"get_tensors_data: tensors are not a sequence, got {shown(tensors)}")
        tensors = read_items("get_tensors_data", "tensors", tensors, kind="tensors")
        for tensor in tensors:
            if not isinstance(tensor, (Variable, Constant)):
                raise ArgumentTypeError(
                    f"get_tensor_data: no variable or constant, got {shown(tensor)}, expected a Variable or Constant"
                )
            self._require_own("get_tensor_data", tensor)
        with self._lock:
            if replicas == "all":
                self._require_idle("get_tensor_data")
                return {tensor: self._data_of_replicas(tensor) for tensor in tensors}
            variables = [tensor for tensor in tensors if isinstance(tensor, Variable)]
            newest = bool(variables) and self._refresh("get_tensor_data", variables)
            return {tensor: self._data_of(tensor, newest) for tensor in tensors}

    def write_variable_data(self, tensor: Variable, data: HostScalarTensor) -> None:
        """Set a variable on the host, and on the device when attached; other variables keep their values."""
        require_variable("write_variable_data", tensor)
        self.write_variables_data({tensor: data})

    @noted("writing variables")
    def write_variables_data(self, tensors: Mapping[Variable, HostScalarTensor]) -> None:
        """Set several variables; nothing is written when one of them does not fit.

        Raises:
            TypeError: not a variable, or data of another dtype.
            ValueError: data of another shape than ``shape_on_host``.
            NotImplementedError: a variable that keeps all replicas.
        """
        tensors = read_mapping("write_variables_data", "tensors", tensors)
        for tensor in tensors:
            if isinstance(tensor, Variable):
                self._require_own("write_variable_data", tensor)
        arrays = {tensor: variable_data(tensor, data) for tensor, data in tensors.items()}
        self._write("write_variable_data", [(t, as_rows(array, t), False) for t, array in arrays.items()])

    @noted("reading variables")
    def read_weights(self, io: PyWeightsIO) -> None:
        """Fill the caller's buffers with the newest values of variables; see ``popsr.io.PyWeightsIO``.

        Downloads first when the device has newer data. All buffers are checked before the first is written to.

        Raises:
            UnknownNameError: no variable has that name.
            TypeError: a buffer is no array, or of another dtype.
            ShapeError: a buffer of another shape.
            SessionError: a buffer is read-only, or a variable is of another Ir.
            ReplicaError: as for ``get_tensor_data``.
        """
        buffers = self._buffers("read_weights", io)
        with self._lock:
            newest = self._refresh("read_weights", [variable for variable, _, _ in buffers])
            for variable, rows, per_replica in buffers:
                self._copies.read(variable, rows, per_replica, newest)

    @noted("writing variables")
    def write_weights(self, io: PyWeightsIO) -> None:
        """Set variables from the caller's buffers, as ``write_variables_data`` does; see ``popsr.io.PyWeightsIO``.

        All buffers are checked before the first variable is written to.

        Raises:
            UnknownNameError, TypeError, ShapeError, SessionError: as for ``read_weights``.
            ReplicaError: rows of replicas of one group are not bitwise the same.
        """
        self._write("write_weights", self._buffers("write_weights", io))

    def storage(self, tensor: Variable) -> Partition:
        """Replicas that share one stored copy of a variable."""
        read_a("storage: tensor", tensor, Variable)
        self._require_own("storage", tensor)
        return self._core.storage(tensor._id)

    def _current_rows(self, variable: Variable) -> np.ndarray[Any, Any]:
        """The newest value, one row per group, of ``shape_on_host``; callers must not write to it."""
        with self._lock:
            newest = self._refresh("save", [variable], save=True)
            rows = None if newest else self._copies.group_rows(variable)
            if rows is None:
                rows = self._copies.room(variable, False)
                self._copies.read(variable, rows, False, newest)
            return np.asarray(rows).reshape(variable.shape_on_host)

    def _current_parts(self, variable: Variable) -> list[np.ndarray[Any, Any]]:
        """The data of ``_current_rows`` in order, never copied: valid while the caller holds the lock."""
        with self._lock:
            newest = self._refresh("save", [variable], save=True)
            if newest or self._copies.on_device(variable):
                return self._core.row_views(variable._id)
            return [self._current_rows(variable)]

    def _set_rows(self, arrays: Mapping[Variable, np.ndarray[Any, Any]]) -> None:
        """Set variables from checked data of ``shape_on_host``, whatever their retrieval mode."""
        self._write(
            "load", [(variable, as_rows(array, variable), False) for variable, array in arrays.items()]
        )

    def _data_of(self, tensor: Tensor, newest: bool) -> np.ndarray[Any, Any]:
        if not isinstance(tensor, Variable):
            return constant_data(tensor)
        mapped = self._copies.mapped(tensor)
        if mapped is not None and not (newest and self._core.is_written(tensor._id)):
            return mapped
        per_replica = keeps_all_replicas(tensor)
        rows = self._copies.room(tensor, per_replica)
        self._copies.read(tensor, rows, per_replica, newest)
        return rows if per_replica else rows.reshape(tensor.shape_on_host)

    def _data_of_replicas(self, tensor: Tensor) -> np.ndarray[Any, Any]:
        """A row per replica, of what the device holds."""
        if not isinstance(tensor, Variable):
            return np.repeat(constant_data(tensor)[np.newaxis], self._ir.replication_factor, axis=0)
        rows = self._copies.room(tensor, True)
        self._copies.read(tensor, rows, True, newest=True)
        return rows

    def _buffers(self, where: str, io: PyWeightsIO) -> list[Rows]:
        from popsr.io._weights_io import PyWeightsIO

        if not isinstance(io, PyWeightsIO):
            raise ArgumentTypeError(f"{where}: io is not a PyWeightsIO, got {shown(io)}")
        buffers = io._buffers(where, self._variables, reading=where == "read_weights")
        for variable, _, _ in buffers:
            self._require_own(where, variable)
        return buffers

    def _write(self, where: str, rows: list[Rows]) -> None:
        with self._lock:
            self._require_idle(where)
            for variable, _, _ in rows:
                mapped = self._copies.mapped(variable)
                if mapped is not None and not mapped.flags.writeable:
                    raise SessionError(f"{where}: '{variable.id}' is a read-only memory-mapped array")
            self._refresh(where)  # others keep their values
            self._ir._restore_seeds(self._seeds_at)
            self._copies.write(rows)

    def _download(self, where: str, *, may_raise: bool) -> None:
        unequal = self._copies.unequal()
        for variable, divergence in unequal.items():
            self._group_lint.report(where, variable, divergence, asked=False, may_raise=may_raise)
        self._copies.download(unequal)
        self._set_stale(False)

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
        newer = self._stale and self._depth > 0
        if newer:
            self._require_idle(where)
            if self._copies.read_only is None:
                unequal = self._copies.unequal()
        for variable in variables:
            if not save and keeps_all_replicas(variable):
                continue
            if unequal is not None and not keeps_all_replicas(variable):
                divergence = unequal.get(variable)
            else:
                divergence = self._copies.divergence(variable, newer)
            if divergence is not None:
                self._group_lint.report(where, variable, divergence, asked=not save)
        if unequal is not None:
            self._copies.download(unequal)
            self._set_stale(False)
        return newer and unequal is None

    def _set_stale(self, stale: bool) -> None:
        self._stale = stale
        self._ir._in_sync = not stale

    def _require_attached(self, where: str) -> None:
        if self._depth == 0:
            raise SessionError(f"{where}: the session is detached, expected a call inside `with session:`")

    def _require_idle(self, where: str) -> None:
        """Refuse calls from what ``print_tensor`` writes to, in the middle of a run."""
        if self._running:
            raise SessionError(f"{where}: the session is running, expected a call after the run")

    def _require_own(self, where: str, tensor: Tensor) -> None:
        if tensor._ir is not self._ir:
            raise SessionError(
                f"{where}: tensor of another Ir, got {shown(tensor)} of {shown(tensor._ir)}, expected {shown(self._ir)}"
            )
        if isinstance(tensor, Variable) and tensor not in self._variables:
            raise SessionError(
                f"{where}: variable is newer than the session, got {shown(tensor)}, expected one of its program"
            )
