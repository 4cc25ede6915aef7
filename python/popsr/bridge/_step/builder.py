"""Building a step: what the importers of all frameworks share."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, Self

import numpy as np

from popsr import _core, dtypes, ops
from popsr._program.building.gaps import Gap, merged_gaps, unsupported_ops
from popsr._program.building.location import describe_location
from popsr._program.context import Setting, _context, in_sequence
from popsr._program.ir import Ir
from popsr._program.streams import d2h_stream, h2d_stream
from popsr._program.tensor import Tensor, Variable, constant
from popsr._program.variables.variables import variable
from popsr._support.host.arguments import (
    read_a,
    read_call,
    read_choice,
    read_dtype,
    read_int,
    read_items,
    read_shape,
    read_text,
)
from popsr._support.text.entry_points import public
from popsr._support.text.frames import file_and_line
from popsr._support.text.shown import shown
from popsr.analysis._axes import ReplicaAxes
from popsr.bridge._step.arguments import PLACEMENT, Argument, Array, Cut, Placement, Result, Rows, Whole
from popsr.bridge._step.opaque import opaque
from popsr.bridge._step.places import Place, at_place
from popsr.bridge._step.reserved import is_reserved, reserved_variable
from popsr.bridge._step.step import BridgedStep
from popsr.errors import ArgumentTypeError, DTypeError, GraphError, ReplicaError, ShapeError, StateError
from popsr.replicas import Partition, ReplicaGrouping

__all__ = ["StepBuilder", "Unsupported"]

Unsupported = Literal["error", "conservative"]


@public
class StepBuilder:
    """A step that is being read: a program, its arguments and results, and the ops that it lacks.

    ``with builder:`` enters the main graph; ops are in the order in which they are made. Graphs of loops and branches
    are made inside as in any program. Lines of the user's program are given with ``popsr.location(file, line)`` around
    what they make, arguments included.

    Args:
        replicas: their number.
        where: the call of the user, for messages.
        unsupported: "error": ``finish`` refuses a step with ops that popsr lacks, and names all of them;
            "conservative": the step can be proved, and is refused when it is run.
    """

    def __init__(self, replicas: int, *, where: str = "bridge", unsupported: Unsupported = "error") -> None:
        """A program without ops."""
        self._where = read_text("StepBuilder: where", where)
        self._unsupported = read_choice(self._where, "unsupported", unsupported, ("error", "conservative"))
        self._ir = Ir(read_int(f"{self._where}: replicas", replicas, 1))
        self._arguments: dict[str, Argument] = {}
        self._results: dict[str, Result] = {}
        self._updates: dict[str, Tensor] = {}
        self._inside: contextlib.ExitStack | None = None
        self._partial: dict[int, Partition] = {}
        self._within = ""
        self.axes: ReplicaAxes | None = None
        """Names of the axes that replicas lie along."""
        self._hints: list[str] = []
        self._refused: list[Gap] = []
        self._notes: dict[str, None] = {}
        self._expected: list[Result] = []
        self._callers: dict[int, tuple[str, ...]] = {}

    @property
    def ir(self) -> Ir:
        """The program."""
        return self._ir

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The ops so far that popsr lacks."""
        return merged_gaps(self._ir._gaps)

    def all(self) -> ReplicaGrouping:
        """One group of all replicas: they are given equal values."""
        return self._ir.replica_grouping()

    def each(self) -> ReplicaGrouping:
        """A group for each replica: values may differ everywhere."""
        return self._ir.replica_grouping(group_size=1)

    def groups(self, labels: Sequence[int]) -> ReplicaGrouping:
        """Groups by a number for each replica: equal numbers are one group."""
        return ReplicaGrouping.from_assignment(labels)

    def hint(self, text: str | None) -> None:
        """Say a line beside the causes of a proof that is not ``ok``; None: nothing."""
        if text is not None:
            self._hints.append(text)

    def __enter__(self) -> Self:
        stack = contextlib.ExitStack()
        stack.enter_context(self._ir.main_graph)
        stack.enter_context(in_sequence())
        self._inside = stack
        return self

    def __exit__(self, *error: Any) -> None:
        stack, self._inside = self._inside, None
        assert stack is not None
        stack.__exit__(*error)

    # Arguments

    def state(
        self,
        path: str,
        value: Any,
        grouping: ReplicaGrouping,
        *,
        dtype: dtypes.dtype | None = None,
        undeclared: bool = False,
        sharded: bool = False,
        placement: Placement = PLACEMENT,
        held: tuple[int, ...] | None = None,
    ) -> Variable:
        """A state: parameters, moments, counters, anything that a run leaves for the next.

        Args:
            path: its name for the user.
            value: initial value: of one group as it is, of several ``(num_groups, *shape)``, in their order.
            grouping: which replicas start with equal values, and are declared to keep them equal.
            dtype: element type. Default: the value's, 64 bits stay 64 bits.
            undeclared: ``grouping`` is of nothing but initial values that differ, of which a proof would say nothing.
            sharded: the state is a part of an array that is cut over replicas.
            placement: how replicas hold parts of an array of one device.
            held: replicas that hold the state; others have values that nobody reads. None: all.
        """
        path = self._path(path)
        grouping = self._own(path, grouping)
        array = self._array(path, value)
        kind = dtypes.dtype.as_dtype(array.dtype) if dtype is None else dtype
        reserved = is_reserved(array)
        if reserved:
            made = reserved_variable(self._ir, path, array, kind, grouping)
        else:
            made = variable(array, kind, path, replica_grouping=grouping, retrieval_mode="all_replicas")
        argument = Argument(
            path,
            "state",
            made.shape,
            kind,
            grouping,
            made,
            made,
            example=None if reserved else array,
            undeclared=undeclared,
            sharded=sharded,
            placement=placement,
            held=held,
        )
        self._add(argument)
        return made

    def data(
        self,
        path: str,
        shape: Iterable[int],
        dtype: dtypes.dtype,
        grouping: ReplicaGrouping,
        *,
        example: Any = None,
        feed: Rows | None = None,
        sharded: bool = False,
        placement: Placement = PLACEMENT,
        held: tuple[int, ...] | None = None,
    ) -> Tensor:
        """Data that are new in each run.

        Args:
            path: its name for the user.
            shape: shape on one replica.
            dtype: element type.
            grouping: which replicas are given equal values.
            example: rows to run with by default, as ``feed`` takes them.
            feed: makes rows of what the user gives: ``(num_groups, *shape)``, or ``shape`` where there is one group.
            sharded: the data are a part of an array that is cut over replicas.
            placement: how replicas hold parts of an array of one device.
            held: replicas that read the data. None: all.
        """
        path = self._path(path)
        grouping = self._own(path, grouping)
        if feed is not None:
            read_call(f"{self._where}: feed of {path}", feed)
        stream = h2d_stream(
            read_shape(f"{self._where}: {path}", shape),
            dtype,
            path,
            replicated_stream_mode="replicate" if grouping.group_size == 1 else grouping,
        )
        loaded = ops.host_load(stream, f"{path}_load")
        argument = Argument(
            path,
            "data",
            stream.shape,
            dtype,
            grouping,
            loaded,
            stream,
            sharded=sharded,
            placement=placement,
            held=held,
            _feed=feed,
        )
        if example is not None:
            argument = _replaced(argument, example=argument.rows(example))
        self._add(argument)
        return loaded

    def constant(self, path: str, value: Any, dtype: dtypes.dtype | None = None) -> Tensor:
        """A value that the step was traced with, equal on all replicas and in all runs."""
        path = self._path(path)
        array = self._array(path, value)
        kind = dtypes.dtype.as_dtype(array.dtype) if dtype is None else dtype
        made = constant(array, kind, path)
        self._add(Argument(path, "constant", made.shape, kind, self.all(), made, example=array))
        return made

    # Results

    def update(self, path: str, new: Tensor) -> None:
        """Say which tensor is the new value of a state. The state is written when the step is finished."""
        path = self._path(path)
        self._tensor(path, new)
        argument = self._arguments.get(path)
        if argument is None or argument.role != "state":
            raise GraphError(
                f"{self._where}: no state to update, got {shown(path)}, expected the path of a state"
            )
        if (new.shape, new.dtype) != (argument.shape, argument.dtype):
            error = ShapeError if new.shape != argument.shape else DTypeError
            raise error(
                f"{self._where}: new value of state {shown(path)} does not fit, got {new.dtype.name}{list(new.shape)}, "
                f"expected {argument.dtype.name}{list(argument.shape)}"
            )
        self._updates[path] = new

    def result(
        self,
        path: str,
        t: Tensor,
        *,
        grouping: ReplicaGrouping | None = None,
        join: Rows | None = None,
        sharded: bool = False,
        whole: Whole | None = None,
        held: tuple[int, ...] | None = None,
        cut: Cut | None = None,
        parts: ReplicaGrouping | None = None,
    ) -> None:
        """Return a tensor.

        Args:
            path: its name for the user.
            t: the tensor.
            grouping: which replicas are declared to return equal values. Default: nothing is declared.
            join: makes what the user expects of ``(replicas, *shape)``. Default: these rows.
            sharded: each replica returns a part of an array that is cut over replicas.
            whole: the array that replicas return parts of.
            held: replicas that return it; others have values that nobody reads. None: all.
            cut: as the user says that replicas return parts.
            parts: replicas that return the same part, where the user may say so.
        """
        path = self._path(path)
        self._tensor(path, t)
        if path in self._results:
            raise GraphError(
                f"{self._where}: two results of one path, got {shown(path)}, expected different paths"
            )
        declared = None if grouping is None else self._own(path, grouping)
        if join is not None:
            read_call(f"{self._where}: join of {path}", join)
        with self._at(t):
            stream = d2h_stream(t.shape, t.dtype, path)
            ops.host_store(stream, t)
        self._results[path] = Result(path, t, stream, declared, sharded, whole, held, cut, parts, join)

    # Lines

    @contextlib.contextmanager
    def at(self, place: Place | None, scope: Sequence[str] = ()) -> Iterator[None]:
        """Inside, ops are of a line of the user and of name scopes.

        Args:
            place: the line; None leaves the line that is.
            scope: names around it in the model, outermost first.
        Raises:
            ArgumentTypeError: ``place`` is not one.
        """
        if place is not None and not isinstance(place, Place):
            raise ArgumentTypeError(f"{self._where}: place is not a line of a program, got {shown(place)}")
        names = read_items(f"{self._where}: scope", "names", scope, kind="names")
        before, first = self._within, self._ir._core.num_ops
        self._within = before if place is None else place.within
        try:
            with at_place(place, [read_text(f"{self._where}: scope", name) for name in names]):
                yield
        finally:
            self._within = before
            if place is not None and place.callers:
                for op in range(first, self._ir._core.num_ops):
                    self._callers.setdefault(op, place.callers)

    def expect(self, path: str, t: Tensor, grouping: ReplicaGrouping) -> None:
        """Say that the rest of the step takes a value for equal in groups: a proof where it is not is not ok.

        A value that is returned or that a state becomes has groups of its own, and needs none of this.
        """
        self._tensor(path, t)
        self._expected.append(Result(self._path(path), t, None, self._own(path, grouping)))

    # Derivatives

    @property
    def in_derivative(self) -> bool:
        """True inside ``derivative``."""
        return _context._derivative

    def derivative(self) -> Setting:
        """Inside, ops are part of a backward pass: what they make are derivatives of values of this replica.

        The program has marks of these ops, which its analyses start from.
        """
        return Setting(lambda: _context._set("_derivative", True))

    def partial_sum(self, t: Tensor, grouping: ReplicaGrouping) -> None:
        """Say that a tensor is a sum of which each replica of a group has a part.

        Args:
            t: a product with a weight that is cut along the dimension that is summed.
            grouping: the replicas that have the parts.
        """
        self._tensor("partial sum", t)
        self._partial[t._id] = self._own("partial sum", grouping).partition

    # Gaps

    def unsupported(
        self,
        op: str,
        inputs: Iterable[Tensor],
        outputs: Sequence[tuple[tuple[int, ...], dtypes.dtype]],
        *,
        everywhere: bool = False,
        exact: bool = False,
    ) -> tuple[Tensor, ...]:
        """Stand-ins for the results of an op that popsr lacks, so that reading goes on.

        They differ between replicas wherever an input does, which is right for every op that computes on one replica
        from its inputs alone.

        Args:
            op: its name, and what about it is not supported.
            inputs: all that it reads.
            outputs: shape and dtype of its results.
            everywhere: True for a collective, and for an op whose results depend on anything else than its inputs.
            exact: True if it is known that the op depends on its inputs alone: a proof needs nothing more of it, so
                that only runs of the step are refused.
        """
        ir = self._ir
        operands = read_items(f"{self._where}: unsupported", "inputs", inputs, kind="tensors")
        for t in operands:
            read_a(f"{self._where}: input of {shown(op)}", t, Tensor)
        results = [
            self._output(op, each)
            for each in read_items(f"{self._where}: unsupported", "outputs", outputs, kind="outputs")
        ]
        name, place = read_text(f"{self._where}: op", op), _known(describe_location())
        gap = Gap(name, place, within=self._within, is_exact=exact)
        before = ir._gaps
        ir._gaps = (*before, gap)  # first: no stand-in is without it
        try:
            made = opaque(operands, results, everywhere)
        except BaseException:
            ir._gaps = before
            raise
        if not exact:
            self._refused.append(gap)
        return made

    def note(self, text: str) -> None:
        """Say in every print of the proof what it rests on."""
        self._notes[read_text(f"{self._where}: note", text)] = None

    def finish(self) -> BridgedStep:
        """The step. New values of states are written; call it inside ``with builder:``, as the last thing.

        Raises:
            UnsupportedOpsError: with ``unsupported="error"``, the step has ops of which nothing is known.
        """
        if self._inside is None:
            raise StateError(f"{self._where}: finish is called outside, expected `with builder:` around it")
        if self._refused and self._unsupported == "error":
            raise unsupported_ops(self._where, self._refused)
        taken = {}
        for path, new in self._updates.items():
            with self._at(new):
                taken[path] = self._taken(new)
        for path, new in taken.items():
            argument = self._arguments[path]
            assert argument.tensor is not None
            with self._at(self._updates[path]):
                ops.var_updates.copy_var_update_(argument.tensor, new)
            self._arguments[path] = _replaced(argument, result=new)
        kept = {each.tensor._id for each in self._results.values()} | {t._id for t in self._updates.values()}
        return BridgedStep(
            self._ir,
            tuple(self._arguments.values()),
            tuple(self._results.values()),
            self.gaps,
            self._where,
            self._partial,
            self.axes,
            tuple(self._hints),
            tuple(self._notes),
            tuple(each for each in self._expected if each.tensor._id not in kept),
            callers=self._callers,
        )

    def _taken(self, new: Tensor) -> Tensor:
        """The tensor, or a copy of it where another update could write its memory before it is read."""
        core = self._ir._core
        producer = core.tensor(new._id).producer
        if producer is not None and core.op_kind(producer) not in _ops_on_memory():
            return new
        return ops.identity(new)

    def _at(self, t: Tensor) -> contextlib.AbstractContextManager[Any]:
        """The line of the op that makes a tensor, or of the variable that it is."""
        core = self._ir._core
        info = core.tensor(t._id)
        if info.producer is not None:
            place = core.location_of(info.producer)
        else:
            place = core.location_of_variable(t._id) if info.kind == "variable" else ""
        return _placed(place) if place else contextlib.nullcontext()

    def _path(self, path: str) -> str:
        return read_text(f"{self._where}: path", path)

    def _tensor(self, path: str, t: Tensor) -> None:
        """Check that a tensor is one of the program."""
        if read_a(f"{self._where}: tensor of {shown(path)}", t, Tensor)._ir is not self._ir:
            raise GraphError(
                f"{self._where}: tensor of another Ir, got {shown(t)}, expected one of {shown(self._ir)}"
            )

    def _output(self, op: str, value: Any) -> tuple[tuple[int, ...], dtypes.dtype]:
        """Shape and dtype of a result of an op that popsr lacks."""
        where = f"{self._where}: output of {shown(op)}"
        items = read_items(where, "shape and dtype", value, kind="shape and dtype")
        if len(items) != 2:
            raise ArgumentTypeError(
                f"{where}: not a shape and a dtype, got {shown(value)}, expected (shape, dtype)"
            )
        return read_shape(where, items[0]), read_dtype(where, items[1])

    def _array(self, path: str, value: Any) -> Array:
        try:
            return np.asarray(value)
        except Exception:
            raise ArgumentTypeError(
                f"{self._where}: value of {shown(path)} is not an array, got {shown(value)}, expected numbers"
            ) from None

    def _own(self, path: str, grouping: ReplicaGrouping) -> ReplicaGrouping:
        read_a(f"{self._where}: grouping of {shown(path)}", grouping, ReplicaGrouping)
        if grouping.num_replicas != self._ir.replication_factor:
            raise ReplicaError(
                f"{self._where}: grouping of {shown(path)} is of other replicas, got {grouping.num_replicas}, "
                f"expected {self._ir.replication_factor}"
            )
        return grouping

    def _add(self, argument: Argument) -> None:
        if argument.path in self._arguments:
            raise GraphError(
                f"{self._where}: two arguments of one path, got {shown(argument.path)}, expected different paths"
            )
        self._arguments[argument.path] = argument


def _placed(place: str) -> Setting:
    """Inside, ops are of the line that a text of ``location_of`` says."""
    file, line = file_and_line(place)
    at = (file, line) if place == f"{file}:{line}" else (place, 0)  # of a cell of a notebook
    return Setting(lambda: _context._set("_location", at))


@functools.cache
def _ops_on_memory() -> frozenset[str]:
    """Ops whose results are in memory that was there before: views and writes in place."""
    return frozenset(each["name"] for each in _core.op_schemas() if each["view"] or each["effects"])


def _replaced(argument: Argument, **fields: Any) -> Argument:
    """``dataclasses.replace``, which does not take private fields."""
    values = {name: getattr(argument, name) for name in Argument.__slots__}
    return Argument(**{**values, **fields})


def _known(place: str) -> str:
    return "" if place == "<unknown>" else place
