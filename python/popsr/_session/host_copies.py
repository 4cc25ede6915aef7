"""The host's copy of a session's variables. It takes no memory as long as the device holds the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from popsr._session.rows import (
    Array,
    Rows,
    as_rows,
    copy_rows,
    first_difference,
    host_array,
    keeps_all_replicas,
    num_rows,
)
from popsr._support.records import Divergence

if TYPE_CHECKING:
    from popsr import _core
    from popsr._program.ir import Ir
    from popsr._program.tensor import Variable

__all__ = ["HostCopies"]


class _Copy:
    """The host copy of one variable.

    Its rows are the first of these: the caller's ``mapped`` file; the device's, if ``on_device``; the Ir's initial
    data, if ``initial``; ``rows`` of our own, one per replica where ``per_replica``. Rows that do not count are kept
    as room for the next ones.
    """

    __slots__ = (
        "divergence",
        "grouping",
        "initial",
        "mapped",
        "on_device",
        "per_replica",
        "rows",
        "variable",
        "written",
    )

    def __init__(self, variable: Variable, mapped: Array | None, written: bool) -> None:
        self.variable = variable
        self.grouping = variable.replica_grouping
        self.mapped = mapped
        self.written = written  # by the program
        self.per_replica = keeps_all_replicas(variable)
        self.on_device = mapped is None  # a session starts with the initial data on the device
        self.initial = mapped is None
        self.rows: Array | None = None
        self.divergence: Divergence | None = None  # of the device's values when they were downloaded

    @property
    def one_of_several(self) -> bool:
        """True if a row stands for replicas that may differ."""
        return not self.per_replica and self.grouping.group_size > 1

    def room(self, per_replica: bool) -> Array:
        """An array for rows."""
        shape = (num_rows(self.grouping, per_replica), *self.variable.shape)
        return np.empty(shape, self.variable.dtype.as_numpy())


class HostCopies:
    """Host copies of all variables of a session. Callers hold the session's lock.

    Args:
        ir: the program.
        core: its compiled form, which holds the device's values.
        variables: variables of the program.
    """

    def __init__(self, ir: Ir, core: _core.Session, variables: Iterable[Variable]) -> None:
        self._ir = ir
        self._core = core
        self._copies = {v._id: _Copy(v, ir._mapped.get(v._id), core.is_written(v._id)) for v in variables}
        self._changing = [copy for copy in self._copies.values() if copy.written]
        self.kept = not self._changing  # is there nothing that keep() has to do?
        mapped = [copy for copy in self._copies.values() if copy.mapped is not None]
        self.read_only = next((c.variable for c in mapped if not _writable(c.mapped)), None)

    def keep(self) -> None:
        """Take what the device holds and a run may change."""
        for copy in self._changing:
            if copy.on_device and not copy.initial:
                if copy.rows is None:
                    copy.rows = copy.room(copy.per_replica)
                self._core.read_variable(copy.variable._id, copy.rows, copy.per_replica)
            copy.on_device = False
        self.kept = True

    def unequal(self) -> dict[Variable, Divergence]:
        """Variables that are read back one per group although the device's values differ inside a group."""
        found = {}
        for copy in self._changing:
            divergence = self._core.divergence(copy.variable._id) if copy.one_of_several else None
            if divergence is not None:
                found[copy.variable] = divergence
        return found

    def download(self, unequal: dict[Variable, Divergence]) -> None:
        """Make the host copies what the device holds; the first member of a group stands for all."""
        for copy in self._changing:
            copy.divergence = unequal.get(copy.variable)
            if copy.mapped is not None:
                self._read_device(copy, as_rows(copy.mapped, copy.variable), False)
            elif (
                copy.divergence is not None
            ):  # uploading would change the device, so these are rows of our own
                if copy.rows is None:
                    copy.rows = copy.room(False)
                self._core.read_variable(copy.variable._id, copy.rows, False)
                copy.initial = False
            else:
                copy.on_device, copy.initial = True, False
        for copy in self._copies.values():
            if isinstance(copy.mapped, np.memmap):
                copy.mapped.flush()
        self.kept = not self._changing

    def upload(self) -> None:
        """Make the device's values what the host copies are."""
        newer = [copy for copy in self._copies.values() if not copy.on_device]
        self._core.write_variables([(copy.variable._id, *self._host_rows(copy)) for copy in newer])
        for copy in newer:
            copy.on_device = copy.mapped is None  # a mapped file may change without our knowledge
            copy.divergence = None
        self.kept = not self._changing

    def trim(self) -> None:
        """Give room back that holds no rows."""
        for copy in self._changing:
            if copy.on_device:
                copy.rows = None

    def write(self, rows: Iterable[Rows]) -> None:
        """Set host copies, and with them the device's values, to ``(rows, *shape)``."""
        given = list(rows)
        self._core.write_variables(
            [
                (variable._id, np.ascontiguousarray(array), per_replica)
                for variable, array, per_replica in given
            ]
        )
        for variable, array, per_replica in given:
            copy = self._copies[variable._id]
            if copy.mapped is not None:
                copy_rows(array, per_replica, as_rows(copy.mapped, variable), False, copy.grouping)
                if isinstance(copy.mapped, np.memmap):
                    copy.mapped.flush()
            copy.on_device, copy.initial = copy.mapped is None, False
            copy.divergence = None
        self.kept = not self._changing

    def room(self, variable: Variable, per_replica: bool) -> Array:
        """A new array for rows of a variable."""
        return self._copies[variable._id].room(per_replica)

    def read(self, variable: Variable, out: Array, per_replica: bool, newest: bool = False) -> None:
        """Copy a host copy to ``out``, ``(rows, *shape)`` of any strides.

        Args:
            variable: the variable.
            out: where to.
            per_replica: a row is a replica and not a group.
            newest: copy what the device holds and not the host copy.
        """
        copy = self._copies[variable._id]
        if newest or copy.on_device:
            self._read_device(copy, out, per_replica)
        else:
            rows, rows_per_replica = self._host_rows(copy)
            copy_rows(rows, rows_per_replica, out, per_replica, copy.grouping)

    def mapped(self, variable: Variable) -> Array | None:
        """The caller's file, if it is the host copy."""
        return self._copies[variable._id].mapped

    def on_device(self, variable: Variable) -> bool:
        """True if the host copy is what the device holds."""
        return self._copies[variable._id].on_device

    def group_rows(self, variable: Variable) -> Array | None:
        """The host copy itself, if it is one row per group on the host; the caller must not write to it."""
        copy = self._copies[variable._id]
        if copy.on_device and not copy.initial:
            return None
        rows, per_replica = self._host_rows(copy)
        return None if per_replica else rows

    def divergence(self, variable: Variable, newest: bool = False) -> Divergence | None:
        """The first element in which members of a group differ, where one row stands for the group.

        Args:
            variable: the variable.
            newest: look at the device and not at the host copy.
        """
        copy = self._copies[variable._id]
        if copy.grouping.group_size == 1:
            return None
        if newest or (copy.on_device and copy.per_replica):
            return self._core.divergence(variable._id)
        if copy.per_replica and copy.rows is not None:
            return first_difference(copy.rows, copy.grouping)
        return (
            copy.divergence
        )  # of what is on the device as well: equal, or it would not have been left there

    def _read_device(self, copy: _Copy, out: Array, per_replica: bool) -> None:
        contiguous = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
        self._core.read_variable(copy.variable._id, contiguous, per_replica)
        if contiguous is not out:
            out[...] = contiguous

    def _host_rows(self, copy: _Copy) -> tuple[Array, bool]:
        """Rows of a copy that the device does not hold, and whether they are one per replica."""
        if copy.mapped is not None:
            return as_rows(copy.mapped, copy.variable), False
        if copy.rows is not None:
            return copy.rows, copy.per_replica
        data = self._ir._core.tensor_data(copy.variable._id)
        assert data is not None
        shape = (copy.grouping.num_groups, *copy.variable.shape)
        return host_array(data, copy.variable.dtype.name, shape), False


def _writable(array: Array | None) -> bool:
    return array is not None and bool(array.flags.writeable)
