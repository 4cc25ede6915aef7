"""Arguments and results of a training step that was read from another framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from popsr import dtypes
from popsr._program.building.gaps import Gap
from popsr._program.ir import Ir
from popsr._program.op import Op
from popsr._program.streams import DeviceToHostStream, HostToDeviceStream
from popsr._program.tensor import Tensor, Variable
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.analysis._axes import ReplicaAxes
from popsr.analysis._explanation import Words
from popsr.errors import ArgumentTypeError
from popsr.replicas import Partition, ReplicaGrouping

__all__ = [
    "AT_OWN_SIZES",
    "PLACEMENT",
    "Argument",
    "Array",
    "Cut",
    "Loss",
    "Part",
    "Placement",
    "Reading",
    "Result",
    "Role",
    "Rows",
    "Smaller",
    "Start",
    "Step",
    "StepNames",
    "Whole",
    "groups_of_holders",
]

Array = NDArray[Any]
Role = Literal["state", "data", "constant"]
Loss = Literal["mean", "of constants", ""]
"""Known of the losses that a step differentiates: means over the rows of a replica; or what constants of the backward
pass say; or nothing."""
Part = tuple[slice, ...] | Array
"""Place of a replica's elements in an array."""
Cut = int | Callable[[Array, int], Any]
"""Parts along a dimension, in the order of groups, or a function of the array and the replica that moves elements."""
Start = Literal["drawn", "kept", "own"]
"""Start of a comparison with one device: with floats that are drawn; with numbers as they are, such as counts; or, of
what one device lacks, with its own values."""
Rows = Callable[[Any], Any]
"""From what the framework's user has to rows for replicas or groups, or back."""


@dataclass(frozen=True, slots=True)
class Whole:
    """The array of which each replica holds a part, or a copy.

    Attributes:
        shape: its shape.
        part: the place in it of what a replica holds: slices, or positions in the flat array, -1 for zeros of padding.
    """

    shape: tuple[int, ...]
    part: Callable[[int], Part] = field(repr=False)


def groups_of_holders(grouping: ReplicaGrouping, held: Sequence[int] | None) -> list[tuple[int, ...]]:
    """The replicas of each group that hold something, all if ``held`` is None; without groups that have none."""
    own = (tuple(each for each in members if held is None or each in held) for members in grouping.groups)
    return [members for members in own if members]


@dataclass(frozen=True, slots=True)
class Placement:
    """Parts of an array of one device as the replicas of a step hold them.

    Attributes:
        cut: as the user says that replicas have parts; None where nothing is said.
        whole: the array that replicas have parts of, where the importer knows it.
        owner: path of the state that it belongs to, which is cut alike; empty without one.
        start: what a comparison with one device begins with.
        name: path as the replicas that hold it call it, where others call another state so; else empty.
        like: path on one device as the user says it; else empty.
    """

    cut: Cut | None = None
    whole: Whole | None = None
    owner: str = ""
    start: Start = "drawn"
    name: str = ""
    like: str = ""


PLACEMENT = Placement()
"""Nothing is known."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A way to read a step once more.

    Attributes:
        alone: on one replica: a mesh of ones, and whole arrays.
        wide: floats of all formats are float64.
        still: random numbers do not depend on keys: masks keep all, noise of mean zero is zero.
        like: another step in its place, of the same arguments; None: the step itself.
        sizes: of dimensions of arguments that are known by their shape alone, and others in their place.
        integers: with ``sizes``, makes integers and truth values of an argument by its number and shape.
    """

    alone: bool = False
    wide: bool = False
    still: bool = False
    like: Any = None
    sizes: Mapping[int, int] | None = None
    integers: Callable[[int, tuple[int, ...]], Any] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Smaller:
    """Smaller sizes at which a step is the same program.

    Attributes:
        sizes: large sizes, and others in their place.
        integers: makes integers that are known by their shape alone.
        notes: which sizes and integers, in words.
        doubt: why a step that differs there may be right at its own sizes; empty if nothing says so.
    """

    sizes: Mapping[int, int] | None = None
    integers: Callable[[int, tuple[int, ...]], Any] | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()
    doubt: str = ""


AT_OWN_SIZES = Smaller()
"""No smaller sizes: a step is compared as it is."""


@public
@dataclass(frozen=True, slots=True)
class Argument:
    """One array that the step takes.

    Attributes:
        path: where it is in the arguments of the step, such as ``params['w']``.
        role: "state", which the step reads and replaces, or keeps; "data", new in each run; or a "constant".
        shape: shape on one replica.
        dtype: element type.
        grouping: which replicas are given equal values.
        tensor: its value as the step begins; None for data that a program of popsr loads where it likes.
        source: the variable of a state, the stream of data, None of a constant.
        result: the tensor that is the state's new value; None when the step keeps it.
        example: rows to run with when none are given: of data as the stream takes them, of a state the initial value.
        undeclared: True for a state whose groups are of nothing but initial values that differ.
        sharded: True for a part of an array that is cut over replicas.
        placement: how replicas hold parts of an array of one device.
        held: replicas that hold the state, or that read the data; None if all do.
    """

    path: str
    role: Role
    shape: tuple[int, ...]
    dtype: dtypes.dtype
    grouping: ReplicaGrouping
    tensor: Tensor | None
    source: Variable | HostToDeviceStream | None = None
    result: Tensor | None = None
    example: Array | None = field(default=None, repr=False)
    undeclared: bool = False
    sharded: bool = False
    placement: Placement = field(default=PLACEMENT, repr=False)
    held: tuple[int, ...] | None = None
    _feed: Rows | None = field(default=None, repr=False)

    @property
    def nbytes(self) -> int:
        """Bytes on one replica."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.as_numpy().itemsize

    def rows(self, value: Any) -> Array:
        """The rows that its stream takes, made of the user's value."""
        given = value if self._feed is None else self._feed(value)
        try:
            return np.asarray(given)
        except Exception:
            raise ArgumentTypeError(
                f"run: value of {shown(self.path)} is not an array, got {shown(given)}, expected rows"
            ) from None

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.role} {self.dtype.name}{list(self.shape)} equal in {self.grouping.partition}"
        )


@public
@dataclass(frozen=True, slots=True)
class Result:
    """One array that the step returns.

    Attributes:
        path: where it is in what the step returns.
        tensor: its value.
        stream: brings it to the host, a row for each replica; None of a value inside of the step.
        grouping: which replicas are declared to return equal values; None when nothing is declared.
        sharded: True for a part of an array that is cut over replicas.
        whole: the array that the replicas have parts of, where the importer knows it.
        held: replicas that return it; None if all do.
        cut: as the user says that replicas return parts; None where nothing is said.
        parts: replicas that return the same part, where the user may say so.
    """

    path: str
    tensor: Tensor
    stream: DeviceToHostStream | None
    grouping: ReplicaGrouping | None = None
    sharded: bool = False
    whole: Whole | None = field(default=None, repr=False)
    held: tuple[int, ...] | None = None
    cut: Cut | None = field(default=None, repr=False)
    parts: ReplicaGrouping | None = field(default=None, repr=False)
    _join: Rows | None = field(default=None, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape on one replica."""
        return self.tensor.shape

    @property
    def dtype(self) -> dtypes.dtype:
        """Element type."""
        return self.tensor.dtype

    def value(self, rows: Array) -> Any:
        """The value for the user, made of a row for each replica."""
        return rows if self._join is None else self._join(rows)

    def __str__(self) -> str:
        declared = "" if self.grouping is None else f" equal in {self.grouping.partition}"
        return f"{self.path}: {self.tensor.dtype.name}{list(self.tensor.shape)}{declared}"


class StepNames(Words, Protocol):
    """Protocol of the names of a step's values, and of the scopes of its ops."""

    def scope(self, op: Op) -> str:
        """The scope of an op as the framework's user writes it; empty outside of all."""


class Step(Protocol):
    """A step as proofs and runs of it see it: a ``BridgedStep``."""

    @property
    def ir(self) -> Ir:
        """The program."""

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Its arguments, in order."""

    @property
    def results(self) -> tuple[Result, ...]:
        """Its results, in order."""

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """Ops that popsr lacks."""

    @property
    def source(self) -> str:
        """The call that made it."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines about what a proof rests on beside the program."""

    @property
    def expected(self) -> tuple[Result, ...]:
        """Values inside that the step takes for equal in groups."""

    @property
    def derivatives(self) -> frozenset[int]:
        """Numbers of the ops of backward passes."""

    @property
    def partial(self) -> Mapping[int, Partition]:
        """Tensors of which each replica of a group has a part of a sum."""

    @property
    def axes(self) -> ReplicaAxes | None:
        """Names of the axes that replicas lie along."""

    @property
    def hints(self) -> tuple[str, ...]:
        """Lines beside the causes of a proof that is not ``ok``."""

    @property
    def variants(self) -> tuple[Any, ...]:
        """Other readings of the step, which are tried as advice."""

    @property
    def loss(self) -> Loss:
        """Known facts about the losses that the step differentiates."""

    @property
    def again(self) -> Callable[[Reading], Step] | None:
        """Reads it in another way; None where the importer cannot."""

    @property
    def smaller(self) -> Callable[[Any], Sequence[Smaller] | str | None] | None:
        """Looks for smaller sizes beside a reference; None where the importer cannot."""

    @property
    def callers(self) -> Mapping[int, tuple[str, ...]]:
        """Lines from which those of ops were called."""

    @property
    def names(self) -> StepNames:
        """Names of its values, in the words of the user's program."""

    @property
    def states(self) -> tuple[Argument, ...]:
        """The arguments that are states."""

    def argument(self, path: str) -> Argument:
        """The argument of a path."""

    def run(self, inputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Run it once."""
