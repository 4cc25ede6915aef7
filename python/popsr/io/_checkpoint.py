"""What all formats of checkpoints share: what is saved of a program, and what is known of a file's tensors."""

from __future__ import annotations

import contextlib
import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from popsr._args import is_a, read_a
from popsr._host_rows import Array
from popsr._shown import shown
from popsr.errors import ArgumentTypeError, UnknownNameError, UnsupportedError
from popsr.io._files import NewFile, OpenFile
from popsr.ir import Ir
from popsr.replicas import VariableSettings
from popsr.session import Session
from popsr.tensor import Variable

__all__ = [
    "MAX_TENSORS",
    "Checkpoint",
    "Program",
    "StoredFile",
    "StoredTensor",
    "bytes_of",
    "saved_program",
]

MAX_TENSORS = 1_000_000
_MAX_RANK = 32


# --- what is saved --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Program:
    """The variables of a program or session; ``parts`` gives a variable's value, one row a group, in pieces."""

    variables: list[Variable]
    parts: Callable[[Variable], list[Array]]
    replication: int
    is_embedded: bool
    step: int | None

    def nbytes(self, variable: Variable) -> int:
        """Size of a variable's rows."""
        return math.prod(variable.shape_on_host) * variable.dtype.as_numpy().itemsize

    def write(self, file: NewFile, variable: Variable) -> None:
        """Write a variable's rows; they are not copied."""
        end = file.size + self.nbytes(variable)
        for part in self.parts(variable):
            file.write(bytes_of(part))
        assert file.size == end, variable


@contextlib.contextmanager
def saved_program(where: str, source: Any) -> Iterator[Program]:
    """The state of a session, or the initial state of an Ir; no run changes it inside the block.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(source, Session):
        with source._lock:
            ir = source._ir
            known = list(source._variables)
            yield Program(
                known, source._current_parts, ir.replication_factor, ir._embeds_replication, source.step
            )
    elif isinstance(source, Ir):
        known = list(source.main_graph.variables)
        yield Program(known, _initial_parts, source.replication_factor, source._embeds_replication, None)
    else:
        raise ArgumentTypeError(f"{where}: neither a session nor an Ir, got {shown(source)}")


def _initial_parts(variable: Variable) -> list[Array]:
    mapped = variable._ir._mapped.get(variable._id)
    if mapped is not None:
        return [mapped]
    data = variable._ir._core.tensor_data(variable._id)
    assert data is not None
    return [data]


def bytes_of(array: Array) -> memoryview:
    """The bytes of an array; those of a C-contiguous one are not copied."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


# --- what is in a file ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a file whose place and size were checked; ``fill`` reads its bytes into a buffer."""

    name: str
    type_name: str
    dtype: np.dtype[Any] | None
    shape: tuple[int, ...]
    settings: VariableSettings | None
    fill: Callable[[Array], None]

    def known_dtype(self, where: str) -> np.dtype[Any]:
        """The NumPy type.

        Raises:
            UnsupportedError: there is none.
        """
        if self.dtype is None:
            raise UnsupportedError(f"{where}: '{self.name}' has a dtype without arrays, got {self.type_name}")
        return self.dtype


@dataclass
class StoredFile:
    """A checked file; ``prepare`` checks where else the named tensors lie before any of them is read."""

    file: OpenFile
    replication: int | None
    step: int | None
    tensors: dict[str, StoredTensor] = field(default_factory=dict)
    prepare: Callable[[list[str]], None] = lambda _: None

    def add(self, tensor: StoredTensor) -> None:
        """Append a tensor.

        Raises:
            CheckpointError: one of that name is there, or there are too many.
        """
        if tensor.name in self.tensors:
            raise self.file.bad(f"has two tensors of one name, got {shown(tensor.name)} twice")
        if len(self.tensors) == MAX_TENSORS:
            raise self.file.bad(f"has too many tensors, expected at most {MAX_TENSORS}")
        self.tensors[tensor.name] = tensor

    def check_shape(self, name: str, shape: Iterable[int]) -> tuple[int, ...]:
        """Refuse negative extents and what NumPy has no arrays for."""
        extents = tuple(shape)
        if any(extent < 0 for extent in extents):
            raise self.file.bad(
                f"has a negative dimension, got {extents} for {shown(name)}, expected 0 or more"
            )
        if len(extents) > _MAX_RANK or math.prod(max(extent, 1) for extent in extents) >= 1 << 59:
            raise self.file.bad(f"has a tensor of absurd size, got {shown(name)} of rank {len(extents)}")
        return extents

    def arrays(self, names: Iterable[str]) -> dict[str, Array]:
        """The data of tensors; all checks come before the first allocation."""
        wanted = [self.tensors[name] for name in names]
        kinds = [tensor.known_dtype(self.file.where) for tensor in wanted]
        self.prepare([tensor.name for tensor in wanted])
        return {tensor.name: self._array(tensor, kind) for tensor, kind in zip(wanted, kinds, strict=True)}

    def _array(self, tensor: StoredTensor, kind: np.dtype[Any]) -> Array:
        try:
            array = np.empty(tensor.shape, kind)
        except MemoryError:
            raise self.file.bad(
                f"does not fit into memory, got {tensor.shape} for {shown(tensor.name)}"
            ) from None
        tensor.fill(array)
        if kind.kind == "b" and array.size and array.view(np.uint8).max() > 1:
            raise self.file.bad(f"has a bool that is neither 0 nor 1 in {shown(tensor.name)}")
        return array


class Checkpoint(Mapping[str, Array]):
    """The tensors of a file by name, and what the file says about them.

    ``replication_factor``, ``settings`` (by name) and ``step`` are there when the file has them; ``unknown`` says what
    cannot be known when it has not.
    """

    def __init__(self, stored: StoredFile) -> None:
        """Reads all tensors."""
        read_a("Checkpoint: stored", stored, StoredFile)
        self.path = stored.file.path
        self.replication_factor = stored.replication
        self.step = stored.step
        self.settings: Mapping[str, VariableSettings] = {
            tensor.name: tensor.settings for tensor in stored.tensors.values() if tensor.settings is not None
        }
        self._arrays = stored.arrays(stored.tensors)

    @property
    def unknown(self) -> str:
        """What the file does not tell; empty when it tells all."""
        if self.replication_factor is None:
            return (
                "no replication factor is embedded, so a leading dimension of groups looks like a dimension of the "
                "replica's tensor: call ir.embed_replication_factor() before saving, or load with "
                "session.reset_host_weights(), which knows the groups"
            )
        without = [name for name in self._arrays if name not in self.settings]
        return f"no groups are saved for {', '.join(map(repr, without))}" if without else ""

    def __getitem__(self, name: str) -> Array:
        if not is_a(name, str) or name not in self._arrays:
            close = difflib.get_close_matches(name if is_a(name, str) else "", self._arrays, n=3, cutoff=0.0)
            raise UnknownNameError(
                f"Checkpoint: no such tensor in '{self.path}', got {shown(name)}, expected one of {close}"
            )
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        factor = "" if self.replication_factor is None else f", replication factor {self.replication_factor}"
        unknown = f"; {self.unknown}" if self.unknown else ""
        return f"Checkpoint['{self.path}': {len(self)} tensors{factor}{unknown}]"
