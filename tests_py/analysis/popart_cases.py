"""Minimal programs for the known errors of PopART's analysis: what it answers, and what is true.

U: it takes for equal what differs. P: it takes for unequal what is equal, or knows less than there is to know. Four
replicas; every host load is random. Each watched tensor says PopART's answer and the replicas that really agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import popsr
from popsr import TensorByRef, ops, transforms
from popsr.ops import collectives, var_updates
from tests_py.support.helpers import Array, Streams, make_variable

F32 = popsr.float32
TOP, PAIRS, STRIDED, BOTTOM = "{0,1,2,3}", "{0,1}{2,3}", "{0,2}{1,3}", "{0}{1}{2}{3}"
ALL, PART = True, False  # PopART's two answers: equal on all replicas, or not


@dataclass
class Watched:
    """A tensor, PopART's answer for it, and the replicas that hold the same."""

    tensor: popsr.Tensor
    popart: bool
    ours: str


@dataclass
class World:
    """A program of four replicas that grows."""

    ir: popsr.Ir = field(default_factory=lambda: popsr.Ir(replication=4))
    io: Streams = field(default_factory=Streams)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))
    watched: list[Watched] = field(default_factory=list)
    changed: dict[Any, Array] = field(
        default_factory=dict
    )  # inputs of the second run that are not as in the first

    def __post_init__(self) -> None:
        """Groups of two: neighbours, and every other one."""
        self.pairs, self.strided = self.ir.replica_grouping(1, 2), self.ir.replica_grouping(2, 2)
        self.single = self.ir.replica_grouping(1, 1)

    def own(self) -> popsr.Tensor:
        """A value of its own on each replica."""
        return self.io.feed(self.data(4, 8), replicated=True)

    def shared(self) -> popsr.Tensor:
        """A value that all replicas load."""
        return self.io.feed(self.data(8))

    def choice(self) -> popsr.Tensor:
        """A truth value of its own on each replica: no two replicas agree in both runs."""
        choice = self.io.feed(np.array([True, False, True, False]), replicated=True)
        self.changed[next(reversed(self.io.inputs))] = np.array([True, True, False, False])
        return choice

    def variable(self, grouping: popsr.ReplicaGrouping | None = None) -> popsr.Variable:
        """A variable; each group has data of its own."""
        groups = 1 if grouping is None else grouping.num_groups
        return make_variable(self.data(groups, 8) if groups > 1 else self.data(8), replica_grouping=grouping)

    def data(self, *shape: int) -> Array:
        """Random numbers."""
        return self.rng.standard_normal(shape).astype(np.float32)

    def watch(self, tensor: popsr.Tensor, popart: bool, ours: str) -> None:
        """Fetch a tensor and say what both analyses find."""
        self.watched.append(Watched(tensor, popart, ours))
        self.io.fetch(tensor)

    def graph(self, fn: Callable[..., Any], *args: Any) -> popsr.Graph:
        """A graph of that function."""
        return self.ir.create_graph(fn, *args)


CASES: dict[str, tuple[Callable[[World], None], Callable[[popsr.Ir], Any] | None]] = {}


def case(name: str, transform: Callable[[popsr.Ir], Any] | None = None) -> Callable[[Any], Any]:
    """Puts a program into the table; ``transform`` runs after it was built."""

    def add(build: Callable[[World], None]) -> Callable[[World], None]:
        CASES[name] = (build, transform)
        return build

    return add


# PopART takes for equal what differs


@case("U1 grouped variables")
def _(w: World) -> None:
    for grouping, ours in ((w.single, BOTTOM), (w.pairs, PAIRS)):
        v = w.variable(grouping)
        w.watch(ops.mul(v, v), ALL, ours)


@case("U2 rotation through a loop")
def _(w: World) -> None:
    source = popsr.h2d_stream((8,), F32)
    w.io.inputs[source] = w.data(4, 8)

    def rotate(use: popsr.Tensor, a: popsr.Tensor, b: popsr.Tensor, x: popsr.Tensor) -> Any:
        return ops.add(a, a), ops.add(b, b), ops.add(x, x)

    one = w.shared()
    use, a, b = ops.repeat(w.graph(rotate, one, one, one, one), 3, one, one, one, ops.host_load(source))
    w.watch(use, ALL, BOTTOM)
    w.watch(a, ALL, BOTTOM)
    w.watch(b, PART, BOTTOM)


@case("U3 state of a loop that is modified in place")
def _(w: World) -> None:
    def body(y: popsr.Tensor, state: TensorByRef, x: popsr.Tensor) -> Any:
        y = ops.add(state, state)
        ops.add_(state, x)
        return y

    state, x = ops.init((8,), F32), w.own()
    (y,) = ops.repeat(w.graph(body, x, state, x), 2, w.shared(), state, x)
    w.watch(y, ALL, BOTTOM)
    w.watch(ops.add(state, state), PART, BOTTOM)


@case("U4 conditions")
def _(w: World) -> None:
    one, two = (
        w.graph(lambda value=value: popsr.constant(np.full(8, value, np.float32))) for value in (1, 2)
    )
    (chosen,) = ops.conditional(w.choice(), one, two)
    w.watch(chosen, ALL, BOTTOM)
    x = w.shared()
    for then_input, popart in ((x, ALL), (w.own(), PART)):
        double, square = w.graph(lambda t: ops.add(t, t), x), w.graph(lambda t: ops.mul(t, t), x)
        w.watch(ops.conditional(w.choice(), double, square, [then_input], [x])[0], popart, BOTTOM)


@case("U4 what branches write")
def _(w: World) -> None:
    def write(t: TensorByRef, x: popsr.Tensor) -> None:
        ops.add_(t, x)

    state, x = w.shared(), w.own()
    ops.conditional(w.choice(), w.graph(write, state, x), w.ir.create_empty_graph(), [state, x])
    w.watch(ops.add(state, state), ALL, BOTTOM)


@case("U5 remote memory")
def _(w: World) -> None:
    buffer = popsr.remote_buffer((8,), F32)
    ops.remote_store(buffer, 0, w.own())
    w.watch(ops.remote_load(buffer, 0), ALL, BOTTOM)


@case("U5 shards of a variable")
def _(w: World) -> None:
    _, shard = popsr.replica_sharded_variable(w.data(8), F32)
    w.watch(ops.add(shard, shard), ALL, BOTTOM)
    w.watch(collectives.replicated_all_gather(shard), ALL, TOP)


def _two_scatters(w: World, popart: bool) -> None:
    inputs = [w.shared(), w.shared()]
    for shard in [collectives.replicated_reduce_scatter(x) for x in inputs]:
        w.watch(shard, popart, BOTTOM)


@case("U6 reduce-scatters of equal data, before they are merged")
def _(w: World) -> None:
    _two_scatters(w, PART)


@case("U6 merged reduce-scatters", transforms.merge_collectives)
def _(w: World) -> None:
    _two_scatters(w, ALL)


def call_behind_a_stale_graph(
    w: World, fn: Callable[[popsr.Tensor], popsr.Tensor], size: int = 8
) -> tuple[popsr.Tensor, popsr.Tensor, popsr.Graph]:
    """An outer graph calls ``fn`` with equal data; later ``fn`` is called with unequal data. Both results."""
    equal, unequal = w.io.feed(w.data(size)), w.io.feed(w.data(4, size), replicated=True)
    inner = w.graph(fn, equal)

    def outer(x: popsr.Tensor) -> popsr.Tensor:
        return ops.relu(ops.call(inner, x)[0])

    first, second = ops.call(w.graph(outer, equal), equal), ops.call(inner, unequal)
    return first[0], second[0], inner


@case("U8 a graph that is not looked at again")
def _(w: World) -> None:
    first, second, _ = call_behind_a_stale_graph(w, ops.gelu)
    w.watch(first, ALL, TOP)  # right as long as nothing rounds inside: there seeds differ, see the tests
    w.watch(second, PART, BOTTOM)


@case("U9 uninitialised memory")
def _(w: World) -> None:
    w.watch(ops.init((8,), popsr.int32, init_type="undef"), ALL, BOTTOM)


@case("U10 ops without inputs that read something else")
def _(w: World) -> None:
    w.watch(ops.replica_index(), ALL, BOTTOM)
    w.watch(ops.replica_index(w.pairs, what="group"), ALL, PAIRS)


# PopART takes for unequal what is equal


@case("P3 full overwrites")
def _(w: World) -> None:
    equal = w.shared()
    w.watch(ops.add(var_updates.copy_var_update_(w.own(), equal), equal), PART, TOP)
    w.watch(ops.add(var_updates.accumulator_zero_(w.own()), equal), PART, TOP)
    w.watch(ops.add(var_updates.accumulator_scale_(w.own(), 0.0), equal), PART, TOP)
    buffer = popsr.remote_buffer((8,), F32)
    ops.remote_store(buffer, 0, equal)
    w.watch(ops.add(ops.remote_load_(buffer, 0, w.own()), equal), PART, TOP)


@case("P5 collectives with groups")
def _(w: World) -> None:
    x = w.own()
    tensor = collectives.replicated_all_reduce(x, "add", w.pairs)
    w.watch(collectives.replicated_all_reduce(tensor, "add", w.strided), PART, TOP)
    shard = collectives.replicated_reduce_scatter(x, "add", w.pairs)
    w.watch(collectives.replicated_all_reduce(shard, "add", w.strided), PART, STRIDED)


def _two_gathers(w: World, popart: bool) -> None:
    inputs = [w.own(), w.own()]
    for whole in [collectives.replicated_all_gather(x) for x in inputs]:
        w.watch(whole, popart, TOP)


@case("P6 all-gathers before they are merged")
def _(w: World) -> None:
    _two_gathers(w, ALL)


@case("P6 merged all-gathers", transforms.merge_collectives)
def _(w: World) -> None:
    _two_gathers(w, PART)


@case("P6 merged all-reduces in groups: one unequal tensor spoils all", transforms.merge_collectives)
def _(w: World) -> None:
    inputs = [w.own(), w.shared()]
    sums = [collectives.replicated_all_reduce(x, "add", w.pairs) for x in inputs]
    w.watch(sums[0], PART, PAIRS)
    w.watch(sums[1], PART, TOP)


@case("P6 merged all-reduces of all replicas", transforms.merge_collectives)
def _(w: World) -> None:
    inputs = [w.own(), w.shared()]
    for total in [collectives.replicated_all_reduce(x, "add") for x in inputs]:
        w.watch(total, ALL, TOP)


@case("P6 merged exchanges keep apart", lambda ir: transforms.merge_exchange(ir=ir))
def _(w: World) -> None:
    index = w.io.feed(np.arange(4, dtype=np.int32), replicated=True)
    buffer = popsr.remote_buffer((8,), F32, entries=4)
    for entry in range(4):
        ops.remote_store(buffer, entry, w.variable())
    equal = w.variable()
    ops.add(equal, equal)
    loads = [ops.remote_load(buffer, 0), ops.remote_load(buffer, index), w.own(), w.shared()]
    for load, popart, ours in zip(loads, (ALL, PART, PART, ALL), (TOP, BOTTOM, BOTTOM, TOP), strict=True):
        w.watch(load, popart, ours)


@case("P7 call sites of one graph")
def _(w: World) -> None:
    def body(x: popsr.Tensor) -> popsr.Tensor:
        return ops.mul(x, x)

    good, bad = w.shared(), w.own()
    graph = w.graph(body, good)
    (first,), (second,) = ops.call(graph, good), ops.call(graph, bad)
    w.watch(first, PART, TOP)
    w.watch(second, PART, BOTTOM)


@case("P8 inputs that have no influence")
def _(w: World) -> None:
    equal = ops.add(w.shared(), w.shared())
    w.watch(ops.add(var_updates.accumulate_(equal, w.own(), 0.0), equal), PART, TOP)


@case("P9 scatter in groups of one")
def _(w: World) -> None:
    # Of PopART's scatters only the operator "local" of such groups is taken for unequal; there is none here.
    w.watch(collectives.replicated_reduce_scatter(w.shared(), "add", w.single), ALL, TOP)
    w.watch(collectives.replicated_reduce_scatter(w.own(), "add", w.single), PART, BOTTOM)


@case("P10 one bool for all groups")
def _(w: World) -> None:
    w.watch(collectives.replicated_all_reduce(w.own(), "add", w.pairs), PART, PAIRS)
    w.watch(collectives.replicated_all_reduce(w.own(), "add", w.strided), PART, STRIDED)


@case("U7 parts of one tensor loaded by one exchange", lambda ir: transforms.merge_exchange(ir=ir))
def _(w: World) -> None:
    x = w.shared()
    halves = [ops.slice_(x, 0, 4), ops.slice_(x, 4, 8)]
    index = w.io.feed(np.arange(4, dtype=np.int32), replicated=True)
    buffer = popsr.remote_buffer((4,), F32, entries=4)
    for entry in range(4):
        ops.remote_store(buffer, entry, ops.slice(w.variable(), 0, 4))
    ops.add(x, x)  # between the stores and the loads, which merge
    ops.remote_load_(buffer, 0, halves[0])
    ops.remote_load_(buffer, index, halves[1])
    w.watch(x, ALL, BOTTOM)
    w.watch(halves[0], ALL, TOP)
    w.watch(halves[1], PART, BOTTOM)


@case("U7 parts of one tensor modified by one call")
def _(w: World) -> None:
    def body(a: TensorByRef, b: TensorByRef, equal: popsr.Tensor, other: popsr.Tensor) -> None:
        var_updates.copy_var_update_(a, equal)
        var_updates.copy_var_update_(b, other)

    x = w.shared()
    halves = [ops.slice_(x, 0, 4), ops.slice_(x, 4, 8)]
    data = [ops.slice(w.shared(), 0, 4), ops.slice(w.own(), 0, 4)]
    ops.call(w.graph(body, *halves, *data), *halves, *data)
    w.watch(x, ALL, BOTTOM)
    w.watch(halves[0], ALL, TOP)
    w.watch(halves[1], PART, BOTTOM)


@case("P1 a view of an equal and an unequal tensor")
def _(w: World) -> None:
    weight = w.variable()
    ops.concat_([weight, w.own()])
    w.watch(weight, PART, TOP)


@case("P2 a step that an optimiser counts in place")
def _(w: World) -> None:
    counter, weight = make_variable(np.zeros((), np.float32)), w.variable()
    m, v = w.variable(), w.variable()
    x = var_updates.adam_updater(m, v, weight, counter, 0.01, 0.9, 0.99)
    var_updates.accumulate_(weight, x, -0.1)
    w.watch(counter, PART, TOP)
    w.watch(x, PART, TOP)
    w.watch(weight, PART, TOP)
    w.watch(m, ALL, TOP)
    w.watch(var_updates.adam_updater(m, m), ALL, TOP)  # counts nothing


@case("P4 both halves reduced in place")
def _(w: World) -> None:
    x = w.own()
    for start in (0, 4):
        collectives.replicated_all_reduce_(ops.slice_(x, start, start + 4), "add")
    w.watch(x, PART, TOP)


def build(name: str) -> World:
    """The program of that name, transformed."""
    program, transform = CASES[name]
    w = World()
    with w.ir.main_graph, popsr.in_sequence():
        program(w)
    if transform is not None:
        transform(w.ir)
    return w
