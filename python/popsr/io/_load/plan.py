"""The plan of a load: for each variable the tensor it takes, and what is done to it."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from popsr._program.tensor import Variable
from popsr._session.rows import Array
from popsr._support.host.files import shown_name, shown_path, shown_shape
from popsr.errors import DTypeError, Error, OutOfRangeError, ReplicaError, ShapeError, UnknownNameError
from popsr.io._checkpoint import close_names
from popsr.io._load.casts import cast_values
from popsr.io._load.diff import LoadDiff, LoadEntry
from popsr.io._load.groups import Rows, rows_of_groups, shown_groups, take_rows
from popsr.io._load.options import LoadOptions, file_names
from popsr.io._settings import grouping_of
from popsr.io._stored import StoredFile, StoredTensor
from popsr.replicas import ReplicaGrouping, VariableSettings

__all__ = ["LoadPlan"]


@dataclass
class _Step:
    """One variable: its tensor, and what is done to it."""

    variable: Variable
    tensor: StoredTensor
    saved: ReplicaGrouping | None
    casts: bool = False
    rows: Rows | None = None  # None if the rows are the program's as they are
    axis: int | None = None
    shards: int = 1
    error: Error | None = None

    @property
    def actions(self) -> tuple[str, ...]:
        """Words for ``LoadEntry``."""
        if self.error is not None:
            return ("refused",)
        done = (("cast", self.casts), ("regroup", self.rows is not None), ("reshard", self.axis is not None))
        return tuple(name for name, is_done in done if is_done) or ("load",)

    @property
    def depends_on_data(self) -> bool:
        """True if the values decide whether it fits."""
        return self.error is None and (self.casts or any(len(each) > 1 for each in self.rows or ()))

    def apply(self, where: str, array: Array) -> Array:
        """The variable's rows, of its dtype and shape on the host."""
        variable, grouping = self.variable, self.variable.replica_grouping
        if self.rows is not None:
            assert self.saved is not None
            array = take_rows(where, variable.id, array, self.rows, self.saved, grouping)
        if self.axis is not None:
            array = _resharded(array, self.shards, grouping.num_groups, self.axis)
        if self.casts:
            array = cast_values(where, variable.id, array, variable.dtype.as_ml_dtypes())
        assert array.shape == variable.shape_on_host, variable
        return array.view(variable.dtype.as_numpy())


class LoadPlan:
    """The meaning of a file and options for a program.

    Args:
        where: the call, for messages.
        stored: the file, whose structure was checked.
        variables: the program's variables.
        options: what the call asks for.
        ignore_missing: variables that the file lacks stay as they are.
    """

    def __init__(
        self,
        where: str,
        stored: StoredFile,
        variables: Iterable[Variable],
        options: LoadOptions,
        ignore_missing: bool,
    ) -> None:
        self._where, self._stored, self._options = where, stored, options
        self._ignore_missing = ignore_missing
        self._names = file_names(where, options.rename, stored.tensors)
        self.variables = list(variables)
        chosen = options.chosen
        self.skipped = [] if chosen is None else [v for v in self.variables if not chosen(v.id)]
        skipped = set(self.skipped)
        wanted = [v for v in self.variables if v not in skipped]
        if chosen is not None and not wanted and self.variables:
            raise UnknownNameError(
                f"{where}: only matches no variable, got none of {len(self.variables)}, expected one such as "
                f"{shown_name(self.variables[0].id)}"
            )
        self.missing = [v for v in wanted if v.id not in self._names]
        self.steps = [self._step(v, stored.tensors[self._names[v.id]]) for v in wanted if v.id in self._names]

    def require(self) -> None:
        """Refuse what does not fit, as far as that is known without data.

        Raises:
            UnknownNameError: the file lacks a variable.
            Error: the first one that does not fit.
        """
        if self.missing and not self._ignore_missing:
            raise self._missing_error()
        for each in self.steps:
            if each.error is not None:
                raise each.error

    def apply(self, arrays: dict[str, Array]) -> dict[Variable, Array]:
        """The variables' rows, of the file's arrays by the file's names, which are given up one by one.

        Raises:
            Error: the first one whose values do not fit.
        """
        return {each.variable: each.apply(self._where, arrays.pop(each.tensor.name)) for each in self.steps}

    def try_data(self) -> None:
        """Note which variables' values do not fit; only data that decides is read."""
        asking = [each for each in self.steps if each.depends_on_data]
        arrays = self._stored.arrays(each.tensor.name for each in asking) if asking else {}
        for each in asking:
            try:
                each.apply(self._where, arrays.pop(each.tensor.name))
            except Error as error:
                each.error = error

    def diff(self, *, is_dry: bool) -> LoadDiff:
        """The diff, with a row for each variable and each tensor that none takes."""
        taken = {each.tensor.name for each in self.steps} | {
            self._names[v.id] for v in self.skipped if v.id in self._names
        }
        rows = {each.variable: self._entry(each) for each in self.steps}
        rows |= {v: LoadEntry(v.id, ("missing",), expected=_shown_variable(v)) for v in self.missing}
        rows |= {v: LoadEntry(v.id, ("skipped",), expected=_shown_variable(v)) for v in self.skipped}
        others = tuple(
            LoadEntry(name, ("unexpected",), name, self._shown(tensor))
            for name, tensor in self._stored.tensors.items()
            if name not in taken
        )
        entries = (*(rows[v] for v in self.variables), *others)
        return LoadDiff(self._stored.file.path, entries, is_dry, self._ignore_missing)

    def _entry(self, step: _Step) -> LoadEntry:
        tensor, variable = step.tensor, step.variable
        return LoadEntry(
            variable.id, step.actions, tensor.name, self._shown(tensor), _shown_variable(variable), step.error
        )

    def _shown(self, tensor: StoredTensor) -> str:
        kind = tensor.type_name if tensor.dtype is None else tensor.dtype.name
        if tensor.settings is None or self._stored.replication is None:
            return f"{kind}{list(tensor.shape)}"
        groups = f" {_shown_saved(tensor.settings.value, self._stored.replication)}"
        return f"{kind}{list(tensor.shape)}{groups}"

    def _saved(self, tensor: StoredTensor) -> ReplicaGrouping | None:
        if tensor.settings is None or self._stored.replication is None:
            return None
        return grouping_of(tensor.settings.value, self._stored.replication)

    def _missing_error(self) -> UnknownNameError:
        first, total = self.missing[0].id, len(self.variables) - len(self.skipped)
        close = close_names(first, self._names)
        hint = f", did you mean {', '.join(close)}" if close else ""
        more = f" and {len(self.missing) - 1} more" if len(self.missing) > 1 else ""
        return UnknownNameError(
            f"{self._where}: {shown_path(self._stored.file.path)} lacks variables, got no {shown_name(first)}{more}"
            f"{hint}, expected all {total} (or ignore_missing=True)"
        )

    def _step(self, variable: Variable, tensor: StoredTensor) -> _Step:
        step = _Step(variable, tensor, self._saved(tensor))
        axis = self._options.axis(variable.id)
        try:
            self._check_dtype(step)
            if axis is None:
                self._check_groups(step)
            else:
                self._check_shards(step, axis)
        except Error as error:
            step.error = error
        return step

    def _check_dtype(self, step: _Step) -> None:
        found, expected = self._stored.known_dtype(step.tensor), step.variable.dtype
        if found == expected.as_ml_dtypes():
            return
        if not self._options.may_cast(found.name):
            raise DTypeError(
                f"{self._where}: dtypes differ for {shown_name(step.variable.id)}, got {found.name}, expected "
                f"{expected.name} (or cast=True)"
            )
        step.casts = True

    def _check_groups(self, step: _Step) -> None:
        variable, saved = step.variable, step.saved
        target = variable.replica_grouping
        groups = target.num_groups
        if saved is not None and saved != target:
            rows = rows_of_groups(saved, target, self._options.by_order)
            if rows is None:
                raise ReplicaError(
                    f"{self._where}: groups of {shown_name(variable.id)} cannot be mapped, got {shown_groups(saved)} "
                    f"of {saved.num_replicas} replicas in the file, expected as many as {shown_groups(target)} of "
                    f"the program's {target.num_replicas} replicas, with members in the same order "
                    f"(or regroup='order', reshard=...)"
                )
            if rows != [(i,) for i in range(saved.num_groups)]:
                step.rows = rows
            groups = saved.num_groups
        expected = (groups, *variable.shape) if groups > 1 else variable.shape
        if step.tensor.shape != expected:
            raise ShapeError(
                f"{self._where}: shapes differ for {shown_name(variable.id)}, got {shown_shape(step.tensor.shape)}, "
                f"expected {shown_shape(expected)}{_shape_hint(variable, step.tensor, groups)}"
            )

    def _check_shards(self, step: _Step, axis: int) -> None:
        variable, shape, groups = step.variable, step.tensor.shape, step.variable.replica_grouping.num_groups
        rank, name = len(variable.shape), shown_name(variable.id)
        if not -rank <= axis < rank:
            raise OutOfRangeError(
                f"{self._where}: reshard has no such axis for {name}, got {axis}, expected one of a tensor of rank "
                f"{rank}"
            )
        axis %= rank
        shards = step.saved.num_groups if step.saved is not None else shape[0] if len(shape) > rank else 1
        row = shape[1:] if len(shape) == rank + 1 else shape
        whole = (*row[:axis], shards * row[axis], *row[axis + 1 :]) if len(row) == rank else ()
        expected = (*variable.shape[:axis], groups * variable.shape[axis], *variable.shape[axis + 1 :])
        if whole != expected:
            raise ShapeError(
                f"{self._where}: shards of {name} do not make one tensor along axis {axis}, got {shards} of "
                f"{shown_shape(row)}, expected {groups} of {shown_shape(variable.shape)} or others of the same whole"
            )
        step.shards = shards
        if shards != groups:
            step.axis = axis


def _resharded(array: Array, shards: int, groups: int, axis: int) -> Array:
    """Shards along an axis, in the order of groups, joined and cut into those of the program."""
    rank = array.ndim - (shards > 1)
    whole = array.reshape(array.shape[-rank:]) if shards == 1 else np.concatenate(list(array), axis)
    if groups == 1:
        return whole
    return np.stack(np.split(whole, groups, axis))


@functools.lru_cache(maxsize=64)
def _shown_saved(settings: VariableSettings, replication: int) -> str:
    """The groups of a tensor; of many replicas their text takes longer than all else of a tensor."""
    return shown_groups(grouping_of(settings, replication))


def _shown_variable(variable: Variable) -> str:
    groups = shown_groups(variable.replica_grouping)
    return f"{variable.dtype.name}{list(variable.shape_on_host)} {groups}"


def _shape_hint(variable: Variable, tensor: StoredTensor, groups: int) -> str:
    if groups <= 1 or tensor.shape != variable.shape:
        return ""
    return (
        f": this is the shape of one replica, but each of the {groups} groups is initialised individually, by a row "
        "of an outer dimension"
    )
