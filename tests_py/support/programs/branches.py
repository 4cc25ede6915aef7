"""Random programs with branches, as popsr's ops and as plain Python that runs one replica at a time.

A program is a list of steps ``(kind, i, j, k)``; steps that run graphs have two more lists of steps. The two sides
share nothing but that list: ``Emitter`` appends ops, ``Replica`` computes with NumPy arrays of its own and waits for
others only in a reduction. All numbers are integers, so results are exact: in float16 as long as none exceeds 2048,
however it is rounded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

import popsr
from popsr import ops
from popsr._program.streams import StreamMode
from popsr.ops import collectives, var_updates
from tests_py.support.helpers import Array
from tests_py.support.programs import Rounding

EXACT = 2048  # in float16
SHAPE, ENTRIES = (2,), 3
Step = tuple[Any, ...]
Refs = tuple[bool, bool]

LEAVES = (
    *("add", "negate", "read", "add_", "copy_", "load_shared", "load_own", "store") * 2,
    *("remote_store", "remote_load", "reduce", "reduce_"),
)
INDEX = st.integers(0, 31)
LEAF = st.tuples(st.sampled_from(LEAVES), INDEX, INDEX, INDEX)


def _nested(children: st.SearchStrategy[Step]) -> st.SearchStrategy[Step]:
    body = st.lists(children, min_size=1, max_size=3)
    return st.tuples(st.sampled_from(["branch"] * 3 + ["call", "repeat"]), INDEX, INDEX, INDEX, body, body)


FLAT = _nested(LEAF)
DEEP = _nested(LEAF | FLAT)
STEPS = st.lists(LEAF | LEAF | FLAT | FLAT | DEEP, min_size=3, max_size=7)


def refs_of(k: int, branch: int = 0) -> Refs:
    """The one of the two variables that a graph takes by reference."""
    return bool(k >> 2 * branch & 1), bool(k >> 2 * branch & 2)


def count_of(k: int) -> int:
    """Iterations of a loop."""
    return k % 4


def transfers_of(steps: Sequence[Step]) -> int:
    """The most elements that any replica moves through one stream."""

    def counts(steps: Sequence[Step]) -> Array:
        total = np.zeros(3, int)
        for kind, _, _, k, *bodies in steps:
            if kind in ("load_shared", "load_own", "store"):
                total[("load_shared", "load_own", "store").index(kind)] += 1
            elif kind == "branch":
                total += np.maximum(counts(bodies[0]), counts(bodies[1]))
            elif bodies:
                total += counts(bodies[0]) * (count_of(k) if kind == "repeat" else 1)
        return total

    return max(2, int(np.max(counts(steps) + np.array([0, 0, 1]))))  # the last step stores


class Data:
    """Inputs of a program of ``n`` replicas; the same for both sides.

    Without rounding numbers are int32, else float16 is rounded in that mode.
    """

    def __init__(self, n: int, steps: list[Step], seed: int, rounding: Rounding = "off") -> None:
        self.n, self.steps, self.rng = n, steps, np.random.default_rng(seed)
        self.rounding, self.dtype = rounding, popsr.int32 if rounding == "off" else popsr.float16
        self.transfers = transfers_of(steps)
        self.assignments = [self._assignment() for _ in range(2)]
        self.assignments += [np.zeros(n, int), np.arange(n)]
        self.inputs = [self._draw(self._count(g)) for g in range(2)]
        self.variables = [self._draw(1), self._draw(self._count(0))]

    def _assignment(self) -> Array:
        size = int(self.rng.choice([k for k in range(1, self.n + 1) if self.n % k == 0]))
        labels = np.empty(self.n, int)
        labels[self.rng.permutation(self.n)] = np.arange(self.n) // size
        order: dict[int, int] = {}
        return np.array([order.setdefault(int(label), len(order)) for label in labels])

    def _count(self, g: int) -> int:
        return int(self.assignments[g].max()) + 1

    def _draw(self, *rows: int) -> Array:
        return self.rng.integers(-4, 4, (*rows, *SHAPE), np.int32)

    def streams(self) -> list[Array]:
        """Data of one run: two tensors, then the two streams that steps load; shared ones come first."""
        t, n = self.transfers, self.n
        return [self._draw(t), self._draw(t, n), self._draw(t), self._draw(t, n)]


# Popsr


class Emitter:
    """The program as ops."""

    def __init__(self, data: Data) -> None:
        self.data, self.ir, self.dtype = data, popsr.Ir(replication=data.n), data.dtype
        self.ir.num_host_transfers = data.transfers
        if data.rounding != "off":
            self.ir.options.enable_stochastic_rounding = True
            self.ir.options.stochastic_rounding_mode = data.rounding
        self.groups = [self.ir.replica_grouping_from_assignments(a.tolist()) for a in data.assignments]
        with self.ir.main_graph, popsr.in_sequence():
            modes: list[StreamMode] = ["broadcast", "replicate"] * 2
            self.sources = [
                popsr.h2d_stream(SHAPE, self.dtype, "in", replicated_stream_mode=m) for m in modes
            ]
            self.sink = popsr.d2h_stream(SHAPE, self.dtype, "out")
            self.memory = popsr.remote_buffer(SHAPE, self.dtype, ENTRIES)
            self.variables = [self._variable(data.variables[0], 2), self._variable(data.variables[1], 0)]
            self.pool: list[popsr.Tensor] = [self._variable(data.inputs[g], g) for g in range(2)]
            self.pool += [ops.host_load(source) for source in self.sources[:2]]
            self._steps(data.steps, self.pool, self.variables)
            ops.host_store(self.sink, self.pool[0])
            self.fetched = [popsr.d2h_stream(SHAPE, self.dtype) for _ in self.pool]
            for stream, tensor in zip(self.fetched, self.pool, strict=True):
                ops.host_store(stream, tensor)

    def _variable(self, rows: Array, g: int) -> popsr.Variable:
        group = self.groups[g]
        data = rows if group.num_groups > 1 else rows[0]
        return popsr.variable(data, self.dtype, "v", replica_grouping=group, retrieval_mode="all_replicas")

    def _steps(self, steps: Sequence[Step], pool: list[Any], variables: list[Any]) -> None:
        for kind, i, j, k, *bodies in steps:
            x, y, v = pool[i % len(pool)], pool[j % len(pool)], variables[j % 2]
            result = getattr(self, f"_{kind}")(x, y, v, k, *([variables, *bodies] if bodies else []))
            if result is not None:
                pool.append(result)

    def _add(self, x: Any, y: Any, v: Any, k: int) -> Any:
        return ops.add(x, y)

    def _negate(self, x: Any, y: Any, v: Any, k: int) -> Any:
        return ops.negate(x)

    def _read(self, x: Any, y: Any, v: Any, k: int) -> Any:
        return ops.add(v, x)

    def _add_(self, x: Any, y: Any, v: Any, k: int) -> Any:
        ops.add_(v, x)

    def _copy_(self, x: Any, y: Any, v: Any, k: int) -> Any:
        var_updates.copy_var_update_(v, x)

    def _load_shared(self, x: Any, y: Any, v: Any, k: int) -> Any:
        return ops.host_load(self.sources[2])

    def _load_own(self, x: Any, y: Any, v: Any, k: int) -> Any:
        return ops.host_load(self.sources[3])

    def _store(self, x: Any, y: Any, v: Any, k: int) -> Any:
        ops.host_store(self.sink, x)

    def _remote_store(self, x: Any, y: Any, v: Any, k: int) -> Any:
        ops.remote_store(self.memory, k % ENTRIES, x)

    def _remote_load(self, x: Any, y: Any, v: Any, k: int) -> Any:
        return ops.remote_load(self.memory, k % ENTRIES)

    def _reduce(self, x: Any, y: Any, v: Any, k: int) -> Any:
        return collectives.replicated_all_reduce(x, "add", self.groups[k % 4])

    def _reduce_(self, x: Any, y: Any, v: Any, k: int) -> Any:
        collectives.replicated_all_reduce_(v, "add", self.groups[k % 4])

    def _graph(self, steps: Sequence[Step], refs: Refs) -> popsr.Graph:
        def build() -> popsr.Tensor:
            pool = [popsr.graph_input(SHAPE, self.dtype, name) for name in "xy"]
            variables = [popsr.graph_input(SHAPE, self.dtype, "v", by_ref=by_ref) for by_ref in refs]
            self._steps(steps, pool, variables)
            return pool[-1]

        return self.ir.create_graph(build)

    def _call(self, x: Any, y: Any, v: Any, k: int, variables: Any, body: Any, _: Any) -> Any:
        return ops.call(self._graph(body, refs_of(k)), x, v if k & 16 else y, *variables)[0]

    def _repeat(self, x: Any, y: Any, v: Any, k: int, variables: Any, body: Any, _: Any) -> Any:
        return ops.repeat(self._graph(body, refs_of(k)), count_of(k), x, y, *variables)[0]

    def _branch(self, x: Any, y: Any, v: Any, k: int, variables: Any, *bodies: Any) -> Any:
        condition = ops.cast(ops.slice(ops.relu(x), 0, 1), popsr.bool)
        then, other = (self._graph(body, refs_of(k, b)) for b, body in enumerate(bodies))
        return ops.conditional(
            condition, then, other, [x, v if k & 16 else y, *variables], [y, x, *variables]
        )[0]

    def run(self, session: popsr.Session, streams: list[Array]) -> tuple[list[Array], list[Array]]:
        """(what was stored: the sink, then one array a tensor of the pool; variables with a row a replica)."""
        narrow = [stream.astype(self.dtype.as_numpy()) for stream in streams]
        feeds = dict(zip(self.sources, narrow, strict=True))
        with session:
            made = session.run({s: feeds[s] for s in session.expected_inputs()})
            variables = [session.get_tensor_data(v) for v in self.variables]
        stored = [made[self.sink], *(made[s][0] for s in self.fetched)]
        return [row.astype(np.int32) for row in stored], [row.astype(np.int32) for row in variables]


# One replica at a time

Wait = tuple[tuple[int, ...], int, Array]  # where it waits, for which groups, with what
Run = Generator[Wait, Array, Any]


class Cell:
    """A variable. Arrays are never written to."""

    def __init__(self, value: Array) -> None:
        self.value = value


class Replica:
    """The program on one replica, as a generator that yields where it waits for others."""

    def __init__(self, data: Data, rank: int) -> None:
        self.data, self.rank = data, rank
        self.own = [a[rank] for a in data.assignments]
        self.variables = [Cell(data.variables[0][0]), Cell(data.variables[1][self.own[0]])]
        self.memory = [np.zeros(SHAPE, np.int32) for _ in range(ENTRIES)]
        self.greatest = 0  # number that it saw
        self.choices: dict[tuple[int, ...], bool] = {}

    def start(self, streams: list[Array]) -> Run:
        """One run."""
        self.streams = [streams[0], streams[1][:, self.rank], streams[2], streams[3][:, self.rank]]
        self.read = [0, 0, 0, 0]
        self.stored = np.zeros((self.data.transfers, *SHAPE), np.int32)
        self.written = 0
        self.choices.clear()
        self.pool = [self.data.inputs[g][self.own[g]] for g in range(2)] + [self.load(0), self.load(1)]
        yield from self.steps(self.data.steps, self.pool, self.variables, ())
        self.store(self.pool[0])

    def load(self, s: int) -> Array:
        self.read[s] += 1
        row: Array = self.streams[s][self.read[s] - 1]
        return row

    def store(self, x: Array) -> None:
        self.stored[self.written % self.data.transfers] = x
        self.written += 1

    def steps(self, steps: Sequence[Step], pool: list[Array], variables: list[Cell], path: Any) -> Run:
        for at, (kind, i, j, k, *bodies) in enumerate(steps):
            x, y, v = pool[i % len(pool)], pool[j % len(pool)], variables[j % 2]
            seen = [*pool, *(cell.value for cell in self.variables), *(cell.value for cell in variables)]
            self.greatest = max(self.greatest, int(np.max(np.abs(np.array(seen, np.int64)))))
            if kind in ("add", "negate", "read"):
                pool.append({"add": x + y, "negate": -x, "read": v.value + x}[kind])
            elif kind in ("add_", "copy_"):
                v.value = v.value + x if kind == "add_" else x
            elif kind in ("load_shared", "load_own"):
                pool.append(self.load(2 if kind == "load_shared" else 3))
            elif kind == "store":
                self.store(x)
            elif kind == "remote_store":
                self.memory[k % ENTRIES] = x
            elif kind == "remote_load":
                pool.append(self.memory[k % ENTRIES])
            elif kind == "reduce":
                pool.append((yield (*path, at), k % 4, x))
            elif kind == "reduce_":
                v.value = yield (*path, at), k % 4, v.value
            else:
                pool.append((yield from self.nested((*path, at), kind, x, y, v, k, variables, bodies)))

    def nested(
        self, path: Any, kind: str, x: Array, y: Array, v: Cell, k: int, variables: list[Cell], bodies: Any
    ) -> Run:
        second = v.value if k & 16 else y
        if kind == "call":
            return (yield from self.body(bodies[0], [x, second], variables, refs_of(k), path))
        if kind == "repeat":
            for t in range(count_of(k)):
                x = yield from self.body(bodies[0], [x, y], variables, refs_of(k), (*path, t))
            return x
        holds = bool(x[0] > 0)
        self.choices[path] = holds
        arguments = [x, second] if holds else [y, x]
        branch = 0 if holds else 1
        return (
            yield from self.body(bodies[branch], arguments, variables, refs_of(k, branch), (*path, branch))
        )

    def body(
        self, steps: Sequence[Step], pool: list[Array], variables: list[Cell], refs: Refs, path: Any
    ) -> Run:
        inner = [v if ref else Cell(v.value) for v, ref in zip(variables, refs, strict=True)]
        yield from self.steps(steps, pool, inner, path)
        return pool[-1]


class Deadlock(Exception):
    """Some replica waits for one that never comes."""


def run_together(replicas: list[Replica], streams: list[Array]) -> None:
    """Runs all replicas to the end, or as far as they get."""
    runs = [replica.start(streams) for replica in replicas]
    waiting: dict[int, Wait] = {}

    def go_on(rank: int, value: Array | None) -> None:
        waiting.pop(rank, None)
        with contextlib.suppress(StopIteration):
            waiting[rank] = runs[rank].send(value)  # type: ignore[arg-type]

    for rank in range(len(runs)):
        go_on(rank, None)
    while waiting:
        met = next(_groups_that_met(replicas[0].data, waiting), None)
        if met is None:
            raise Deadlock
        total = np.asarray(np.sum([waiting[rank][2] for rank in met], axis=0, dtype=np.int32))
        for rank in met:
            go_on(rank, total)


def _groups_that_met(data: Data, waiting: dict[int, Wait]) -> Iterator[list[int]]:
    for where, g, _ in waiting.values():
        for group in set(data.assignments[g].tolist()):
            members = np.flatnonzero(data.assignments[g] == group).tolist()
            if all(rank in waiting and waiting[rank][:2] == (where, g) for rank in members):
                yield members


def mixed_choices(replicas: list[Replica]) -> int:
    """Number of conditionals that sent replicas both ways in the last run."""
    paths = {path for replica in replicas for path in replica.choices}
    seen = [{r.choices[path] for r in replicas if path in r.choices} for path in paths]
    return sum(len(choices) == 2 for choices in seen)


Check = Callable[[Data], None]
