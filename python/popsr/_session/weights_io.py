"""Weights between a session and buffers of the caller; files are the matter of ``popsr.io``."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from popsr import dtypes
from popsr._program.tensor import Variable
from popsr._session.rows import Array, Rows, as_rows, first_difference, keeps_all_replicas
from popsr._support.host.arguments import is_a
from popsr._support.host.overlap import first_overlap, overlaps_itself
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import (
    ArgumentTypeError,
    AttributeValueError,
    DTypeError,
    ReplicaError,
    SessionError,
    ShapeError,
    UnknownNameError,
)
from popsr.utils import TORCH_BITS

__all__ = ["PyWeightsIO"]


@public
class PyWeightsIO:
    """Buffers for ``session.read_weights`` and ``session.write_weights``.

    A buffer is a NumPy array (of any strides, also of the types of ml_dtypes, also memory-mapped) or a torch tensor
    on the CPU, whose memory is shared. Its shape follows from the variable's groups and retrieval mode:

    ================================  ==================  ===================
    variable of ``shape``             "one_per_group"     "all_replicas"
    ================================  ==================  ===================
    one group                         ``shape``           ``[R, *shape]``
    G groups of several replicas      ``[G, *shape]``     ``[R, *shape]``
    a group per replica               ``[R, *shape]``     ``[R, *shape]``
    ================================  ==================  ===================

    for R replicas. A single row may have its dimension of 1 or not. ``write_weights`` takes the shapes of both columns
    whatever the mode; rows of replicas of one group have to be bitwise the same.

    Args:
        buffers: a buffer for each variable to be read or written, by the variable or its name: the full id, or the
            last part of it where that is unique.
    Raises:
        TypeError: not a mapping, or a key that is neither.
    """

    def __init__(
        self, buffers: Mapping[Variable, Any] | Mapping[str, Any] | Mapping[Variable | str, Any]
    ) -> None:
        """Keep the buffers; they are checked against a session when they are used."""
        if not is_a(buffers, Mapping):
            raise ArgumentTypeError(f"PyWeightsIO: buffers is not a mapping, got {shown(buffers)}")
        for key in buffers:
            if not isinstance(key, (Variable, str)):
                raise ArgumentTypeError(f"PyWeightsIO: key is not a Variable or name, got {shown(key)}")
        self._given: dict[Variable | str, Any] = dict(buffers.items())

    def __repr__(self) -> str:
        return f"PyWeightsIO({', '.join(key if isinstance(key, str) else key.id for key in self._given)})"

    def _buffers(self, where: str, variables: Iterable[Variable], reading: bool) -> list[Rows]:
        """The buffers as rows, all checked.

        Args:
            where: the caller, for messages.
            variables: what names can mean.
            reading: buffers are to be filled.
        """
        by_id = {variable.id: variable for variable in variables}
        rows: dict[Variable, Rows] = {}
        arrays: dict[Variable, Array] = {}
        for key, buffer in self._given.items():
            variable = _find(where, by_id, key) if isinstance(key, str) else key
            if variable in rows:
                raise AttributeValueError(f"{where}: two buffers for '{variable.id}', expected one")
            array = _as_array(where, variable, buffer)
            if reading and not array.flags.writeable:
                raise SessionError(
                    f"{where}: buffer of '{variable.id}' is read-only, expected a writable one"
                )
            rows[variable] = _read_rows(where, variable, array, reading)
            arrays[variable] = array
        if reading:
            _refuse_shared(where, arrays)
        return list(rows.values())


def _refuse_shared(where: str, arrays: Mapping[Variable, Array]) -> None:
    """Refuse memory that would be written to twice: one value would be lost."""
    for variable, array in arrays.items():
        if overlaps_itself(array):
            raise SessionError(
                f"{where}: buffer of '{variable.id}' has elements that share memory, got strides {array.strides} for "
                f"shape {array.shape}, expected memory of its own for each"
            )
    shared = first_overlap(list(arrays.values()))
    if shared is not None:
        first, second = (list(arrays)[i].id for i in shared)
        raise SessionError(
            f"{where}: buffers share memory, got '{first}' and '{second}', expected memory of its own for each"
        )


def _find(where: str, by_id: Mapping[str, Variable], name: str) -> Variable:
    if name in by_id:
        return by_id[name]
    found = [variable for id_, variable in by_id.items() if id_.endswith(f"/{name}")]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(f"'{variable.id}'" for variable in found)
        raise UnknownNameError(f"{where}: name of several variables, got '{name}', expected one of {ids}")
    close = difflib.get_close_matches(name, by_id, n=3, cutoff=0.0)
    expected = ", ".join(f"'{id_}'" for id_ in close) or "none: the program has no variables"
    raise UnknownNameError(f"{where}: unknown variable, got '{name}', expected one of {expected}")


def _as_array(where: str, variable: Variable, buffer: Any) -> Array:
    """The buffer as array of the variable's dtype that shares its memory."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(buffer, torch.Tensor):
        buffer = _share_torch(where, variable, torch, buffer)
    if not isinstance(buffer, np.ndarray):
        raise ArgumentTypeError(
            f"{where}: buffer of '{variable.id}' is not an array, got {type(buffer).__name__}, "
            "expected a NumPy array or a torch tensor"
        )
    kind = dtypes.dtype._of_numpy(buffer.dtype)
    if kind is not variable.dtype or not buffer.dtype.isnative:
        raise DTypeError(
            f"{where}: dtypes differ for '{variable.id}', got {buffer.dtype}, expected {variable.dtype.name}"
        )
    own = kind.as_numpy()  # float8 may be of ml_dtypes
    return buffer if buffer.dtype == own else buffer.view(own)


def _share_torch(where: str, variable: Variable, torch: Any, tensor: Any) -> Any:
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise ArgumentTypeError(
            f"{where}: buffer of '{variable.id}' is not in the CPU's memory, got {tensor.device} and {tensor.layout}, "
            "expected a strided tensor on the CPU"
        )
    kind = str(tensor.dtype).removeprefix("torch.")
    known = dtypes.dtype._all.get(TORCH_BITS.get(str(tensor.dtype), kind))
    if known is None:
        raise DTypeError(
            f"{where}: dtypes differ for '{variable.id}', got {kind}, expected {variable.dtype.name}"
        )
    if str(tensor.dtype) in TORCH_BITS:  # NumPy does not know it: its bits
        bits = torch.int16 if known is dtypes.bfloat16 else torch.int8
        return tensor.detach().view(bits).numpy().view(known.as_numpy())
    return tensor.detach().numpy()


def _read_rows(where: str, variable: Variable, array: Array, reading: bool) -> Rows:
    """The buffer with its first dimension, and whether that counts replicas."""
    grouping = variable.replica_grouping
    per_replica = keeps_all_replicas(variable)
    accepted = {per_replica: grouping.num_replicas if per_replica else grouping.num_groups}
    if not reading:
        accepted.setdefault(not per_replica, grouping.num_groups if per_replica else grouping.num_replicas)
    for kind, extent in accepted.items():  # the one that the mode asks for first
        whole = (extent, *variable.shape)
        if array.shape == whole or (extent == 1 and array.shape == variable.shape):
            rows = as_rows(array, variable)
            if kind and not reading:
                _check_equal(where, variable, rows)
            return variable, rows, kind
    shapes = " or ".join(str(_shape_of(variable, extent)) for extent in dict.fromkeys(accepted.values()))
    raise ShapeError(
        f"{where}: shapes differ for '{variable.id}', got {array.shape}, expected {shapes}: {grouping.num_groups} "
        f"groups on {grouping.num_replicas} replicas, retrieval_mode {shown(variable.retrieval_mode)}"
    )


def _shape_of(variable: Variable, extent: int) -> tuple[int, ...]:
    return variable.shape if extent == 1 else (extent, *variable.shape)


def _check_equal(where: str, variable: Variable, rows: Array) -> None:
    grouping = variable.replica_grouping
    found = first_difference(rows, grouping)
    if found is not None:
        first, other, element = found
        raise ReplicaError(
            f"{where}: rows of one group differ for '{variable.id}', got replicas {first} and {other} of group "
            f"{grouping.assignment[first]} differing at element {element}, expected bitwise equal rows"
        )
