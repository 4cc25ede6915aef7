"""Programs run in exact arithmetic: all replicas in step, op by op."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from popsr._program.ir import Ir
from popsr._program.op import Op
from popsr._support.fields import EXPS_BEYOND, Array, Numbers
from popsr._support.host.garbage import collected_rarely
from popsr.bridge._exact._frames import Frame, Place
from popsr.bridge._exact._native import run_op
from popsr.bridge._exact._program import GraphOps, OpRecord, as_numpy, graphs_of, is_float
from popsr.bridge._exact._unknown import Unknown, first_unknown
from popsr.errors import SessionError, UnsupportedError
from popsr.ops._exact import COLLECTIVES, WITHOUT, Exact, Value

__all__ = ["ExactRun", "run_exact"]

Observe = Callable[[Op, list[list[Value | None]]], list[list[Value | None]] | None]
Rows = list[Any]
"""A value for each replica; None where a replica does not run the place."""


def run_exact(
    ir: Ir,
    given: Mapping[int, Sequence[Value]],
    draw: int = 0,
    observe: Observe | None = None,
    *,
    partly: bool = False,
) -> ExactRun:
    """Run a program once in exact arithmetic.

    Floats become exact real numbers, integers and bools stay what they are.

    Args:
        ir: the program.
        given: for the ids of variables and of tensors that host-loads make a value for each replica: ``Numbers`` for
            floats, an array for others. Variables that are not given have their initial values.
        draw: number of the draw, of which the order of numbers depends; draws of values are the caller's.
        observe: is called after each op with it and the values of its results for each replica, None where a replica
            did not run it. Values are immutable, and one object where replicas share a value. Values that it returns
            take their place, but of views, of what is written into memory, and of ops that run graphs.
        partly: what an op without exact meaning makes, and what depends on it, is ``Unknown``; else it is an error.
    Returns:
        The values of variables and of what was stored.
    Raises:
        UnsupportedError: an op has no exact meaning; the text names it and its line.
        SessionError: a stream is loaded whose data is not given.
    """
    run = ExactRun(ir, given, draw, observe, partly=partly)
    run._start()
    return run


class ExactRun:
    """A program that ran in exact arithmetic.

    Attributes:
        deepest: the number of exps in each other that a value came to. As many as there are fields beyond the first
            follow the laws of exp; further ones are random functions.
        beyond: True if an exp was such a random function.
        sides: for each op that compares drawn numbers, as in a minimum, what elements of each of its comparisons came
            to, as ``Exact.sides`` has it. A side that is missing in all draws was not tested.
    """

    def __init__(
        self,
        ir: Ir,
        given: Mapping[int, Sequence[Value]],
        draw: int,
        observe: Observe | None,
        *,
        partly: bool,
    ) -> None:
        """A program that is about to run."""
        self._ir, self._given, self._draw, self._observe, self._partly = ir, given, draw, observe, partly
        self._replicas = ir.replication_factor
        lows = [value.low for rows in given.values() for value in rows if isinstance(value, Numbers)]
        self._low = min(lows, default=0)
        self.deepest = 0
        self.beyond = False
        self.sides: dict[int, list[Array]] = {}
        self._graphs = graphs_of(ir)
        self._exacts: dict[int, Exact] = {}
        self._has_unknown = False
        self._main = Frame()
        self._stored: dict[int, Rows] = {}
        self._constants: dict[int, Value] = {}

    def value(self, tensor_id: int) -> list[Value]:
        """The value of a variable, or of a tensor of the main graph, on each replica after the run."""
        return self._main.read(tensor_id, range(self._replicas))

    def stored(self, stream_id: int) -> list[Value | None]:
        """The value that went to a stream last, on each replica."""
        return list(self._stored[stream_id])

    def _start(self) -> None:
        for id_ in self._ir._core.graph_variables(0):
            self._main.new(id_, self._initial(id_))
        before = EXPS_BEYOND.get()
        with collected_rarely():
            self._run(0, self._main, tuple(range(self._replicas)))
        self.beyond = EXPS_BEYOND.get() > before

    def _read_given(self, id_: int) -> Rows:
        """The values that are given for a tensor; floats among them become exact numbers."""
        dtype, known = self._ir._core.tensor(id_).dtype, dict[int, Value]()
        for value in self._given[id_]:
            if id(value) not in known:
                self._has_unknown |= isinstance(value, Unknown)
                ready = isinstance(value, (Numbers, Unknown))
                known[id(value)] = value if ready else self._value(np.asarray(value), dtype)
        return [known[id(value)] for value in self._given[id_]]

    def _initial(self, id_: int) -> Rows:
        """Values of a variable: those that are given, or else its own."""
        if id_ in self._given:
            return self._read_given(id_)
        core = self._ir._core
        info, groups = core.tensor(id_), core.variable(id_).grouping
        data = core.tensor_data(id_)
        assert data is not None
        rows = as_numpy(data, info.dtype).reshape(groups.num_groups, *info.shape)
        values = [self._value(row, info.dtype) for row in rows]
        return [values[group] for group in groups.assignment]

    def _value(self, array: Any, dtype: str) -> Value:
        return Numbers.of(array, self._low) if is_float(dtype) else array

    def _run(self, graph: int, frame: Frame, active: tuple[int, ...]) -> None:
        """Run a graph on some replicas."""
        known = self._graphs.get(graph)
        if known is None:
            known = self._graphs[graph] = GraphOps(self._ir, graph)
        for id_ in known.constants:
            if id_ not in self._constants:
                info, data = self._ir._core.tensor(id_), self._ir._core.tensor_data(id_)
                assert data is not None
                array = as_numpy(data, info.dtype).reshape(info.shape)
                self._constants[id_] = self._value(array, info.dtype)
            frame.new(id_, [self._constants[id_]] * self._replicas)
        for op in known.ops:
            self._step(op, frame, active)

    def _step(self, op: OpRecord, frame: Frame, active: tuple[int, ...]) -> None:
        if op.schema["view"]:
            self._view(op, frame)
        elif op.schema["control"] != "none":
            self._control(op, frame, active)
        elif "h2d_stream" in op.attributes:
            self._load(op, frame)
        elif "d2h_stream" in op.attributes:
            self._store(op, frame, active)
        else:
            self._compute(op, frame, active)
        if self._observe is not None:
            rows = [frame.rows(id_, active, self._replicas) for id_ in op.outputs]
            others = self._observe(Op(self._ir, op.id), rows)
            if others is not None and op.makes_new:
                for id_, own in zip(op.outputs, others, strict=True):
                    frame.new(id_, own)

    def _load(self, op: OpRecord, frame: Frame) -> None:
        id_ = op.outputs[0]
        if id_ not in self._given:
            name = self._ir._core.stream(op.attributes["h2d_stream"]).name
            raise SessionError(f"run_exact: no value for stream '{name}', expected rows for tensor {id_}")
        frame.new(id_, self._read_given(id_))

    def _store(self, op: OpRecord, frame: Frame, active: tuple[int, ...]) -> None:
        stream = op.attributes["d2h_stream"]
        rows = self._stored.setdefault(stream, [None] * self._replicas)
        (operand,) = op.inputs
        assert operand is not None
        for replica, value in zip(active, frame.read(operand, active), strict=True):
            rows[replica] = value

    def _view(self, op: OpRecord, frame: Frame) -> None:
        """Memory of the operands under another name."""
        places = [frame.place(id_) for id_ in op.inputs if id_ is not None]
        shapes = [self._ir._core.tensor(id_).shape for id_ in op.inputs if id_ is not None]
        at, given = 0, []
        for shape in shapes:
            size = int(np.prod(shape, dtype=np.int64))
            given.append(np.arange(at, at + size, dtype=np.int64).reshape(shape))
            at += size
        (positions,) = run_op(op.kind, op.given_attributes, given)
        frame.places[op.outputs[0]] = Place.joined(places, positions)

    def _compute(self, op: OpRecord, frame: Frame, active: tuple[int, ...]) -> None:
        operands = [
            [None] * self._replicas if id_ is None else frame.rows(id_, active, self._replicas)
            for id_ in op.inputs
        ]
        unknown = None
        if self._has_unknown:
            unknown = first_unknown(*(rows[r] for rows in operands for r in active))
        if unknown is None:
            try:
                results = self._results(op, operands, active)
            except UnsupportedError as error:
                if not self._partly:
                    raise
                self._exact(op).sides.clear()
                unknown = Unknown(str(error))
        if unknown is not None:
            self._has_unknown = True
            results = self._unknown_results(op, unknown, active)
        for i, (id_, written) in enumerate(zip(op.outputs, op.written, strict=True)):
            rows = [None if each is None else each[i] for each in results]
            if written is not None:
                operand = op.inputs[written]
                assert operand is not None
                frame.places[id_] = frame.place(operand)
                frame.write(operand, rows, active)
            else:
                frame.new(id_, rows)

    def _unknown_results(self, op: OpRecord, unknown: Unknown, active: tuple[int, ...]) -> Rows:
        """Results of an op that cannot be computed on each replica."""
        shapes = [self._ir._core.tensor(id_).shape for id_ in op.outputs]
        made = [Unknown(unknown.reason, int(np.prod(shape, dtype=np.int64))) for shape in shapes]
        return [made if r in active else None for r in range(self._replicas)]

    def _results(self, op: OpRecord, operands: list[Rows], active: tuple[int, ...]) -> Rows:
        """For each replica the list of its results."""
        exact = self._exact(op)
        try:
            if op.kind in WITHOUT:
                self._refuse(WITHOUT[op.kind])
            if op.kind in COLLECTIVES:
                rows = COLLECTIVES[op.kind](exact, *operands)
                self._note_sides(op, exact)
                return [[row] if r in active else None for r, row in enumerate(rows)]
            out: Rows = [None] * self._replicas
            known: dict[tuple[int, ...], list[Value]] = {}
            for r in active:
                own = [rows[r] for rows in operands]
                key = tuple(map(id, own))
                found = known.get(key)
                if found is None:
                    found = known[key] = self._local(op, exact, own)
                    self._note_depth(found)
                    self._note_sides(op, exact)
                out[r] = found
            return out
        except UnsupportedError as error:
            place = self._ir._core.location_of(op.id)
            raise UnsupportedError(
                f"{error}, got op '{op.kind}' at {place or '?'}, expected one with an exact meaning: compare in float64"
            ) from None

    def _exact(self, op: OpRecord) -> Exact:
        found = self._exacts.get(op.id)
        if found is None:
            found = self._exacts[op.id] = op.exact(self._replicas, self._low, self._draw)
        return found

    def _note_depth(self, results: list[Value]) -> None:
        """Keep how deep exps are."""
        for value in results:
            if isinstance(value, Numbers) and value.low - self._low > self.deepest:
                self.deepest = value.low - self._low

    def _note_sides(self, op: OpRecord, exact: Exact) -> None:
        """Keep outcomes of the comparisons that an op has made, and let it begin anew."""
        if not exact.sides:
            return
        kept = self.sides.setdefault(op.id, [])
        kept += [np.zeros_like(each) for each in exact.sides[len(kept) :]]
        for known, found in zip(kept, exact.sides, strict=False):
            known |= found
        exact.sides.clear()

    def _local(self, op: OpRecord, exact: Exact, operands: list[Any]) -> list[Value]:
        """Results of an op on one replica."""
        floats = any(isinstance(value, Numbers) for value in operands)
        if op.meaning is not None and (floats or op.makes_floats or op.always):
            found = op.meaning(exact, *operands)
            return list(found) if isinstance(found, (list, tuple)) else [found]
        if floats:
            self._refuse("none is written")
        arrays = run_op(op.kind, op.given_attributes, operands)
        return [self._value(array, of.dtype) for array, of in zip(arrays, exact.outputs, strict=True)]

    @staticmethod
    def _refuse(reason: str) -> None:
        raise UnsupportedError(f"run_exact: an op has no exact meaning, {reason}")

    def _control(self, op: OpRecord, frame: Frame, active: tuple[int, ...]) -> None:
        """Run the graphs of a call, loop or conditional."""
        rows = [None if id_ is None else frame.rows(id_, active, self._replicas) for id_ in op.inputs]
        modified = {
            i: frame.place(id_)
            for i in self._ir._core.op_modified(op.id)
            if (id_ := op.inputs[i]) is not None
        }
        if op.schema["control"] == "conditional":
            condition = rows[0]
            assert condition is not None
            if unknown := first_unknown(*(condition[r] for r in active)):
                results = self._undecided(op, unknown, modified, active)
            else:
                results = self._branches(op, rows, modified, active)
        elif "graph" in op.attributes and op.schema["control"] == "call":
            results = self._called(op.attributes["graph"], rows, modified, active)
        else:
            results = self._looped(op, rows, modified, active)
        for id_, values in zip(op.outputs, results, strict=True):
            frame.new(id_, values)

    def _undecided(
        self, op: OpRecord, unknown: Unknown, modified: Mapping[int, Place], active: tuple[int, ...]
    ) -> list[Rows]:
        """The outputs of an op that runs graphs, if which ones it runs is not known."""
        for place in modified.values():
            for r in active:
                for memory in place.memories:
                    memory.rows[r] = Unknown(unknown.reason, memory.rows[r].size)
        results = self._unknown_results(op, unknown, active)
        return [[None if each is None else each[i] for each in results] for i in range(len(op.outputs))]

    def _called(
        self, graph: int, rows: Sequence[Any], modified: Mapping[int, Place], active: tuple[int, ...]
    ) -> list[Rows]:
        """The outputs of a graph; inputs that it may write share memory with the operands."""
        core, frame = self._ir._core, Frame()
        for i, (id_, values) in enumerate(zip(core.graph_inputs(graph), rows, strict=True)):
            if i in modified:
                frame.places[id_] = modified[i]
            else:
                frame.new(id_, list(values))
        self._run(graph, frame, active)
        return [frame.rows(id_, active, self._replicas) for id_ in core.graph_outputs(graph)]

    def _looped(
        self, op: OpRecord, rows: list[Any], modified: Mapping[int, Place], active: tuple[int, ...]
    ) -> list[Rows]:
        """The outputs of the last iteration of a loop, or its first inputs."""
        graph, count = op.attributes["graph"], op.attributes.get("count")
        carried: list[Rows] = list(rows[: len(self._ir._core.graph_outputs(graph))])
        most = op.attributes.get("max_iterations")
        for iteration in itertools.count():
            if count is None and (unknown := first_unknown(*(carried[0][r] for r in active))):
                return self._undecided(op, unknown, modified, active)
            if iteration == count or (count is None and not any(carried[0][r].any() for r in active)):
                return carried
            if most is not None and iteration >= most:
                raise UnsupportedError(f"run_exact: loop goes on after {most} iterations")
            carried = self._called(graph, [*carried, *rows[len(carried) :]], modified, active)
        raise AssertionError

    def _branches(
        self, op: OpRecord, rows: list[Any], modified: Mapping[int, Place], active: tuple[int, ...]
    ) -> list[Rows]:
        """The outputs of the branch that each replica runs."""
        core, at = self._ir._core, 1
        results: list[Rows] = [[None] * self._replicas for _ in op.outputs]
        for name, holds in (("then_branch", True), ("else_branch", False)):
            graph = op.attributes[name]
            size = len(core.graph_inputs(graph))
            here = tuple(r for r in active if bool(rows[0][r].any()) == holds)
            if here:
                own = {i - at: place for i, place in modified.items() if at <= i < at + size}
                for out, values in zip(
                    results, self._called(graph, rows[at : at + size], own, here), strict=True
                ):
                    for r in here:
                        out[r] = values[r]
            at += size
        return results
