"""Copies of a traced program with changes: what the step would be if its author had written it so."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from popsr import _core
from popsr._program.building.transaction import transactional
from popsr._program.ir import Ir
from popsr._program.streams import DeviceToHostStream, HostToDeviceStream, Stream, d2h_stream, h2d_stream
from popsr._program.tensor import Tensor
from popsr._support.text.frames import file_and_line
from popsr.bridge._step.arguments import Argument, Array, Step
from popsr.replicas import ReplicaGrouping

__all__ = ["ORDERED", "Change", "Insertion", "can_copy", "edited", "redeclared"]

ORDERED = 1
"""Mode of ``Ir.emit`` for ops that run in the order in which they are appended, as bridged steps have them."""


class Insertion(NamedTuple):
    """An all-reduce that is put between a tensor and some of its users.

    Attributes:
        tensor: number of the tensor, which an op makes.
        users: numbers of the ops that take the result in its place.
        kind: "mean" or "add".
        group: the replicas that it is taken over.
        location: ``file:line`` of it.
    """

    tensor: int
    users: frozenset[int]
    kind: Literal["mean", "add"]
    group: ReplicaGrouping
    location: str


class Change(NamedTuple):
    """Another form of an op.

    Attributes:
        attributes: those that are others.
        constants: constants that are others, by position of the operand.
        factor: what its results are multiplied by.
        left_out: True if its result is its operand.
    """

    attributes: Mapping[str, Any] = {}
    constants: Mapping[int, Array] = {}
    factor: float = 1.0
    left_out: bool = False


@functools.cache
def _attributes_of_kind(kind: str) -> Mapping[str, tuple[str, ...]]:
    """Names of the attributes of a kind, "graph" or "stream", by op."""
    return {
        each["name"]: tuple(attr["name"] for attr in each["attrs"] if attr["type"] == kind)
        for each in _core.op_schemas()
    }


_AS_IT_IS = Change()


@functools.cache
def _writing() -> frozenset[str]:
    """Ops that write an operand in place, but for the one that stores new values of states."""
    names = (each["name"] for each in _core.op_schemas() if each["effects"])
    return frozenset(names) - {"copy_var_update_"}


def writes_operand(ir: Ir, op: int) -> bool:
    """True for an op that may write what it takes."""
    return ir._core.op_kind(op) in _writing()


def can_copy(ir: Ir) -> bool:
    """True for programs of what importers make: no shards, remote buffers, inputs by reference or ops of the user."""
    core = ir._core
    if ir._custom_ops or ir._residents or ir._rules_by_hand is not None or ir._num_host_transfers != 1:
        return False
    for number in range(core.num_tensors):
        info = core.tensor(number)
        if info.kind in ("shard", "remote") or info.by_ref or core.home(number) is not None:
            return False
    remote = _attributes_of_kind("remote buffer")
    return not any(remote[core.op_kind(op)] for op in range(core.num_ops))


@transactional
def edited(
    step: Step, insertions: Iterable[Insertion] = (), changes: Mapping[int, Change] | None = None
) -> Step:
    """A step on a copy of its program, with all-reduces put in and ops in another form.

    Args:
        step: the step, of whose program ``can_copy`` is true.
        insertions: what to put in.
        changes: what to change, by number of the op.
    """
    return _copied_step(step, insertions, {}, changes or {})


@transactional
def redeclared(step: Step, groups: Mapping[str, ReplicaGrouping]) -> Step:
    """A step on a copy of its program, of which other replicas are given equal values: those of the first of a group.

    Args:
        step: the step, of whose program ``can_copy`` is true.
        groups: replicas that are given equal values, by path of a state or of data.
    """
    return _copied_step(step, (), groups, {})


def _copied_step(
    step: Step,
    insertions: Iterable[Insertion],
    groups: Mapping[str, ReplicaGrouping],
    op_changes: Mapping[int, Change],
) -> Step:
    changed = [(each.source, groups[each.path]) for each in step.arguments if each.path in groups]
    variables = {source._id: group for source, group in changed if isinstance(source, Tensor)}
    streams = {source._id: group for source, group in changed if isinstance(source, HostToDeviceStream)}
    copy = _Copy(step, insertions, variables, streams, op_changes)
    copy.run()
    changes: dict[str, Any] = {
        "ir": copy.new,
        "arguments": tuple(_declared(_copied(each, copy), groups.get(each.path)) for each in step.arguments),
        "results": tuple(_copied(each, copy) for each in step.results),
        "expected": tuple(_copied(each, copy) for each in step.expected),
        "partial": {copy.tensors[t]: each for t, each in step.partial.items() if t in copy.tensors},
    }
    made: Step = replace(cast("Any", step), **changes)
    return made


class _Copy:
    """A copy that is being made, and the numbers in it by the numbers in the program.

    Args:
        step: the step.
        insertions: what to put in.
        variables: replicas that are given equal values where others are than before, by number.
        fed: the replicas that a stream gives equal values, likewise.
        changes: ops that have another form.
    """

    def __init__(
        self,
        step: Step,
        insertions: Iterable[Insertion],
        variables: Mapping[int, ReplicaGrouping],
        fed: Mapping[int, ReplicaGrouping],
        changes: Mapping[int, Change],
    ) -> None:
        """Without any op."""
        self.ir, self.core, self._variables, self._fed = step.ir, step.ir._core, variables, fed
        self._derivatives, self._changes = step.derivatives, changes
        self.new = Ir(step.ir.replication_factor)
        self.tensors: dict[int, int] = {}
        self.streams: dict[int, Stream] = {}
        self._graphs: dict[int, int] = {0: 0}
        self._insertions: dict[int, list[Insertion]] = {}
        self._instead: dict[tuple[int, int], int] = {}  # by user and operand
        for each in insertions:
            self._insertions.setdefault(each.tensor, []).append(each)

    def run(self) -> None:
        """Copy everything."""
        self.new.options.enable_stochastic_rounding = self.ir.options.enable_stochastic_rounding
        self.new.options.stochastic_rounding_mode = self.ir.options.stochastic_rounding_mode
        self.new._gaps = self.ir._gaps
        self._graph(0)

    def _graph(self, old: int) -> int:
        """The copy of a graph, after those that it calls."""
        core = self.core
        for called in core.called_graphs(old):
            if called not in self._graphs:
                self._graphs[called] = self.new._core.create_named_graph(core.graph_name(called))
                self._graph(called)
        for t in core.graph_tensors(old):
            self._leaf(t)
        for op in core.graph_ops(old):
            self._op(op, old)
        for t in core.graph_outputs(old) if old else ():
            self.new._core.add_output(self._graphs[old], self.tensors[t])
        return self._graphs[old]

    def _leaf(self, t: int) -> None:
        """A variable, a constant or an input."""
        info, core = self.core.tensor(t), self.new._core
        graph = self._graphs[info.graph]
        dtype = self.ir._tensor(t).dtype
        if info.kind == "variable":
            held = self.core.variable(t)
            rows = held.grouping.num_groups
            data = self.core.tensor_data(t)
            assert data is not None
            shape = info.shape if rows == 1 else (rows, *info.shape)
            values = data.view(dtype.as_numpy()).reshape(shape)
            grouping = held.grouping
            if t in self._variables:
                grouping = self._variables[t]
                values = _rows_of(values, held.grouping, grouping)
            self.tensors[t] = core.add_variable(
                info.name, info.dtype, info.shape, values, grouping, held.all_replicas, True,
                self._place(self.core.location_of_variable(t)),
            )  # fmt: skip
        elif info.kind == "constant":
            data = self.core.tensor_data(t)
            assert data is not None
            values = data.view(dtype.as_numpy()).reshape(info.shape)
            self.tensors[t] = self._constant(values, t, info.graph)
        elif info.kind == "input":
            self.tensors[t] = core.add_input(
                graph, info.name, info.dtype, info.shape, info.meta_shape, info.by_ref
            )

    def _op(self, op: int, graph: int) -> None:
        """An op, and what is put in after it."""
        core, kind = self.core, self.core.op_kind(op)
        attributes = core.op_attributes(op)
        for name in _attributes_of_kind("graph")[kind]:
            attributes[name] = self._graphs[attributes[name]]
        for name in _attributes_of_kind("stream")[kind]:
            attributes[name] = self._stream(attributes[name])._id
        inputs = [
            None if t is None else self._instead.get((op, t), self.tensors[t]) for t in core.op_inputs(op)
        ]
        outputs = core.op_outputs(op)
        change = self._changes.get(op, _AS_IT_IS)
        if change.left_out:
            assert inputs[0] is not None
            self.tensors[outputs[0]] = inputs[0]
            return
        attributes |= change.attributes
        for at, array in change.constants.items():
            old = core.op_inputs(op)[at]
            assert old is not None
            inputs[at] = self._constant(array, old, graph)
        names = [core.tensor(t).name for t in outputs]
        place = core.op_place(op)
        made = self.new._core.emit(
            self._graphs[graph],
            kind,
            inputs,
            attributes,
            names,
            self._place(core.location_of(op)),
            ORDERED,
            True,
            place.ipu,
            place.tile_set == "io",
            op in self._derivatives,
        )
        for old, new in zip(outputs, made.outputs, strict=True):
            self.tensors[old] = (
                new.id if change.factor == 1.0 else self._times(new.id, change.factor, op, graph)
            )
            for each in self._insertions.get(old, ()):
                self._insert(each, graph)

    def _constant(self, array: Array, like: int, graph: int) -> int:
        """A constant of the element type of a tensor of the program."""
        info, dtype = self.core.tensor(like), self.ir._tensor(like).dtype
        values = np.asarray(array).astype(dtype.as_numpy())
        made: int = self.new._core.add_constant(
            self._graphs[graph], info.name, info.dtype, values.shape, values
        )
        return made

    def _times(self, tensor: int, factor: float, op: int, graph: int) -> int:
        """The result of an op, multiplied by a number."""
        constant = self._constant(np.asarray(factor), self.core.op_outputs(op)[0], graph)
        return self._emit(graph, "mul", [tensor, constant], {}, self.core.location_of(op))

    def _insert(self, each: Insertion, graph: int) -> None:
        attributes = {"op": each.kind, "group": each.group}
        made = self._emit(
            graph, "replicated_all_reduce", [self.tensors[each.tensor]], attributes, each.location
        )
        for user in each.users:
            self._instead[user, each.tensor] = made

    def _emit(
        self, graph: int, kind: str, inputs: list[int | None], attributes: dict[str, Any], location: str
    ) -> int:
        """The result of an op that the program lacks."""
        place = self._place(location)
        made = self.new._core.emit(
            self._graphs[graph], kind, inputs, attributes, [], place, ORDERED, True, 0, False, False
        )
        return int(made.outputs[0].id)

    def _stream(self, number: int) -> Stream:
        """The copy of a stream."""
        if number not in self.streams:
            old = self.ir._stream_cache[number]
            info = self.core.stream(number)
            with self.new.main_graph:
                if isinstance(old, HostToDeviceStream):
                    made: Stream = h2d_stream(
                        info.shape,
                        old.dtype,
                        info.name,
                        replicated_stream_mode=self._fed.get(number, old.replicated_stream_mode),
                        downcast_inputs=old.downcast_inputs,
                    )
                else:
                    made = d2h_stream(info.shape, old.dtype, info.name)
            self.streams[number] = made
        return self.streams[number]

    def _place(self, place: str) -> int:
        """The number of a line in the copy."""
        if not place or place == "<unknown>":
            return 0
        file, line = file_and_line(place)
        return self.new._core.intern_location(*((file, line) if place == f"{file}:{line}" else (place, 0)))


def _copied(each: Any, copy: _Copy) -> Any:
    """An argument or result with tensors and streams of the copy."""

    def moved(value: Any) -> Any:
        if isinstance(value, Tensor):
            return copy.new._tensor(copy.tensors[value._id])
        if isinstance(value, (HostToDeviceStream, DeviceToHostStream)):
            return copy.streams[value._id]
        return value

    return type(each)(**{field.name: moved(getattr(each, field.name)) for field in fields(each)})


def _declared(each: Argument, grouping: ReplicaGrouping | None) -> Argument:
    """An argument of which other replicas are given equal values."""
    if grouping is None:
        return each
    example = None if each.example is None else _rows_of(each.example, each.grouping, grouping)
    made = {field.name: getattr(each, field.name) for field in fields(each)}
    return Argument(**made | {"grouping": grouping, "example": example, "undeclared": False})


def _rows_of(values: Array, old: ReplicaGrouping, new: ReplicaGrouping) -> Array:
    """A row for each group of rows for other groups: the first replica's."""
    rows = values[None] if old.num_groups == 1 else values
    row_of = {member: number for number, group in enumerate(old.groups) for member in group}
    found: Array = np.stack([rows[row_of[group[0]]] for group in new.groups])
    return found.reshape(found.shape[1:]) if new.num_groups == 1 else found
