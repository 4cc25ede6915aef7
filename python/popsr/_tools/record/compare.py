"""The first difference between two recordings, and its cause."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from popsr._program.building.location import short_place
from popsr._support.text.entry_points import public
from popsr._support.text.replica_sets import set_text
from popsr._support.text.summary import Summarised, Summary
from popsr._tools.record.align import Alignment, Program, align
from popsr._tools.record.reading import Input, Row, Run, open_record

__all__ = ["Difference", "diff"]

_SET = 80  # characters of a set of replicas


@dataclass(frozen=True)
class Difference(Summarised):
    """The first difference between two recordings; false when there is none.

    Attributes:
        kind: "equal"; "op" (equal operands, other results), "changed" (the op has other attributes or operands),
            "only in a", "only in b"; "variable", "stream", "seed"; "runs" (one recording has more of them);
            "replicas" (one program has more).
        name: the op's kind, or the name of the variable or stream.
        op: the name of the op's first output; "" of an input.
        line: ``file:line`` of the op.
        step: number of the run.
        iterations: those around the op, the outermost loop first; of a stream the transfer.
        replicas: those that differ, where the difference is first seen.
        notes: what differs in the op, where the difference is first seen, and other differences of the inputs.
    """

    kind: str
    name: str = ""
    op: str = ""
    line: str = ""
    step: int | None = None
    iterations: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.kind != "equal"

    def _title(self) -> str:
        if self.kind == "equal":
            return "equal: every value that both recordings have"
        parts = [f"{self.kind}: {self.name}".rstrip(": ")]
        if self.op:
            parts.append(f"'{self.op}'")
        if self.line:
            parts.append(f"at {short_place(self.line)}")
        if self.step is not None:
            parts.append(f"in run {self.step}")
        if self.iterations:
            word = "transfer" if self.kind == "stream" else "iteration"
            parts.append(f"{word} {', '.join(map(str, self.iterations))}")
        if self.replicas:
            parts.append(f"on replicas {set_text(self.replicas, _SET)}")
        return " ".join(parts)

    def _summary(self) -> Summary:
        return Summary(self._title(), ("note",), [(note,) for note in self.notes], len(self.notes))

    def __str__(self) -> str:
        return "\n".join([self._title(), *(f"  {note}" for note in self.notes)])

    def __repr__(self) -> str:
        return f"Difference[{self._title()}]"


@public
def diff(a: str | os.PathLike[str], b: str | os.PathLike[str]) -> Difference:
    """The first difference between the runs that two files of ``popsr.record`` hold.

    Ops are aligned by number when the programs are equal, else by scope, kind, operands and position: so recordings of
    other processes, settings, versions and edited programs are compared. Only values that both recordings have take
    part; an op whose operands a fused op did not store is judged by the nearest recorded values that they are made of.

    Args:
        a: a recording.
        b: another one.
    Raises:
        FileError: a file cannot be read, or is not a complete recording.
    """
    one, two = open_record("diff", a), open_record("diff", b)
    return _Comparison(align(Program(one.table), Program(two.table))).of(one.runs(), two.runs())


@dataclass(frozen=True)
class _Seen:
    """A row of a that differs in b."""

    row: Row
    replicas: tuple[int, ...]
    is_missing: bool = False


class _Comparison:
    def __init__(self, alignment: Alignment) -> None:
        self._all = alignment
        self._a, self._b = alignment.a, alignment.b
        self._recorded: set[int] = set()  # ops of a whose values were equal in the run at hand

    def of(self, a: Iterable[Run], b: Iterable[Run]) -> Difference:
        """Run by run."""
        sizes = [program.table["replicas"] for program in (self._a, self._b)]
        if sizes[0] != sizes[1]:
            return Difference("replicas", notes=(f"{sizes[0]} replicas in a, {sizes[1]} in b",))
        before: Run | None = None
        for number, (s, t) in enumerate(zip_longest(a, b)):
            if s is None or t is None:
                short = "a" if s is None else "b"
                return Difference("runs", notes=(f"recording {short} has {number} runs, the other one more",))
            found = self._of_run(s, t, before)
            if found:
                return found
            before = s
        return self._structure(before) or Difference("equal")

    def _of_run(self, s: Run, t: Run, before: Run | None) -> Difference | None:
        inputs = self._inputs(s, t)
        seen = self._first(s, t)
        if inputs and before is not None and inputs[0].kind == "variable":
            return self._structure(before, inputs[0].name) or inputs[0]
        if inputs:
            return self._chosen(inputs, seen, s)
        if seen is None:
            return None
        return self._cause(seen, s, t)

    # Inputs

    def _inputs(self, s: Run, t: Run) -> list[Difference]:
        others = {(i.is_stream, self._input_name(self._b, i)): i for i in t.inputs}
        found = []
        for one in s.inputs:
            name = self._input_name(self._a, one)
            other = others.get((one.is_stream, name))
            if other is None:
                continue
            for time, (x, y) in enumerate(zip(one.values, other.values, strict=False)):
                replicas = _unequal(x, y)
                if replicas:
                    kind = "stream" if one.is_stream else "variable"
                    at = (time,) if one.is_stream else ()
                    found.append(Difference(kind, name, step=s.step, iterations=at, replicas=replicas))
                    break
        return found

    def _input_name(self, program: Program, each: Input) -> str:
        if each.is_stream:
            return str(program.table["streams"][each.id])
        return str(program.tensors[each.id]["name"])

    def _chosen(self, inputs: list[Difference], seen: _Seen | None, run: Run) -> Difference:
        """The input that the first op with another result has used, with notes of the others."""
        used: set[str] = set()
        notes = []
        if seen is not None:
            for op in self._upstream(self._a, seen.row.op, stops=False):
                row = self._a.ops[op]
                used |= {self._a.tensors[t]["name"] for t in row["inputs"] if t is not None}
                used |= set(row["streams"])
            notes.append(self._first_seen(seen))
        chosen = next((each for each in inputs if each.name in used), inputs[0])
        notes += [f"also {each._title()}" for each in inputs if each is not chosen]
        return Difference(
            chosen.kind, chosen.name, step=run.step, iterations=chosen.iterations,
            replicas=chosen.replicas, notes=tuple(notes),
        )  # fmt: skip

    # Values

    def _first(self, s: Run, t: Run) -> _Seen | None:
        """The first row of a whose values differ in b, or that b has not computed."""
        others = {(row.op, row.nth): row for row in t.rows}
        self._recorded = set()
        for row in s.rows:
            op = self._all.to_b.get(row.op)
            if op is None:
                continue
            other = others.get((op, row.nth))
            if other is None:
                if 0 < t.counts[op] <= row.nth:  # else a rewrite of the plan left it out
                    return _Seen(row, _present(row), True)
                continue
            x, y = row.outputs(), other.outputs()
            replicas = sorted({r for k in x.keys() & y.keys() for r in _unequal(x[k], y[k])})
            if replicas:
                return _Seen(row, tuple(replicas))
            self._recorded.add(row.op)
        mine = {(row.op, row.nth) for row in s.rows}
        for row in t.rows:
            op = self._all.to_a.get(row.op)
            if op is not None and (op, row.nth) not in mine and s.counts[op] <= row.nth:
                first = next((r for r in s.rows if r.op == op), None)
                if first is not None:
                    return _Seen(Row(op, row.nth, row.iterations, row.slot, row.hashes), _present(row), True)
        return None

    def _cause(self, seen: _Seen, s: Run, t: Run) -> Difference:
        """The op that was edited on the way to the first difference, the seed, or the op itself."""
        a, b = self._a, self._b
        ops = self._upstream(a, seen.row.op)
        others = self._upstream(b, self._all.to_b[seen.row.op])
        only_a = [op for op in ops if op not in self._all.to_b]
        only_b = [op for op in others if op not in self._all.to_a]
        where = self._first_seen(seen)
        if only_a or only_b:
            return self._one_sided(only_a, only_b, seen, s, where)
        both = [op for op in ops if op in self._all.to_b]
        for changes in (self._all.changes, self._all.operand_changes):
            for op in both:
                if changes(op):
                    notes = (*changes(op), *(() if op == seen.row.op else (where,)))
                    return self._named("changed", a, op, seen, s, notes)
        if s.seed != t.seed and any(a.ops[op]["stochastic"] for op in both):
            return Difference(
                "seed", step=s.step, replicas=seen.replicas, notes=(f"{s.seed} in a, {t.seed} in b", where)
            )
        skipped = [op for op in both if op != seen.row.op and not a.ops[op]["graphs"]]
        notes = ("its operands are equal, its results differ",)
        if skipped:
            names = ", ".join(self._op_text(a, op) for op in skipped[:4])
            notes = (f"not recorded in both, so one of these may be the first: {names}",)
        return self._named("op", a, seen.row.op, seen, s, notes)

    def _one_sided(
        self, only_a: Sequence[int], only_b: Sequence[int], seen: _Seen, run: Run, where: str
    ) -> Difference:
        notes = [where]
        if only_a and only_b:
            notes.insert(0, f"in its place b has {self._op_text(self._b, only_b[-1])}")
        program, op = (self._a, only_a[-1]) if only_a else (self._b, only_b[-1])
        return self._named("only in a" if only_a else "only in b", program, op, seen, run, tuple(notes))

    def _named(
        self, kind: str, program: Program, op: int, seen: _Seen, run: Run, notes: tuple[str, ...]
    ) -> Difference:
        row = program.ops[op]
        return Difference(
            kind, row["kind"], row["name"], row["line"], run.step, seen.row.iterations, seen.replicas, notes
        )

    def _first_seen(self, seen: _Seen) -> str:
        text = self._op_text(self._a, seen.row.op)
        if seen.is_missing:
            return f"first seen at {text}, which only one recording has so often"
        return f"first seen at {text} on replicas {set_text(seen.replicas, _SET)}"

    def _op_text(self, program: Program, op: int) -> str:
        row = program.ops[op]
        return f"{row['kind']} '{row['name']}' at {short_place(row['line'])}"

    # The graph

    def _upstream(self, program: Program, op: int, stops: bool = True) -> list[int]:
        """The op, and what it is made of, back to values that were found equal; the nearest first."""
        found, todo = {op: None}, [op]
        while todo:
            next_ops: list[int] = []
            for id_ in todo:
                for other in self._makers(program, id_):
                    if other not in found and not (stops and self._was_equal(program, other)):
                        next_ops.append(other)
                        found[other] = None
            todo = next_ops
        return list(found)

    def _was_equal(self, program: Program, op: int) -> bool:
        return (op if program is self._a else self._all.to_a.get(op)) in self._recorded

    def _makers(self, program: Program, op: int) -> Iterable[int]:
        row: dict[str, Any] = program.ops[op]
        tensors = [t for t in row["inputs"] if t is not None]
        for graph in row["graphs"]:
            tensors += program.graphs[graph]["outputs"]
        for tensor in tensors:
            if tensor in program.producers:
                yield program.producers[tensor][0]
            elif tensor in program.input_of:
                yield from program.callers.get(program.input_of[tensor][0], ())
        yield from program.callers.get(row["graph"], ())

    def _structure(self, run: Run | None, variable: str = "") -> Difference | None:
        """An op that only one program has, or that differs, though no value that both recorded does."""
        step = None if run is None else run.step
        for kind, program, others in (
            ("only in a", self._a, self._all.to_b),
            ("only in b", self._b, self._all.to_a),
        ):
            for op, row in program.ops.items():
                if op in others or (variable and not self._touches(program, op, variable)):
                    continue
                note = f"variable '{variable}' differs after it" if variable else "no recorded value differs"
                return Difference(kind, row["kind"], row["name"], row["line"], step, notes=(note,))
        for changes in (self._all.changes, self._all.operand_changes):
            for op in self._all.to_b:
                if changes(op) and (not variable or self._touches(self._a, op, variable)):
                    row = self._a.ops[op]
                    notes = tuple(changes(op))
                    return Difference("changed", row["kind"], row["name"], row["line"], step, notes=notes)
        return None

    def _touches(self, program: Program, op: int, variable: str) -> bool:
        names = (program.tensors[t]["name"] for t in program.ops[op]["inputs"] if t is not None)
        return variable in names


def _unequal(x: Sequence[int | None], y: Sequence[int | None]) -> tuple[int, ...]:
    return tuple(r for r, (s, t) in enumerate(zip(x, y, strict=False)) if s != t)


def _present(row: Row) -> tuple[int, ...]:
    hashes = list(row.outputs().values())
    return tuple(r for r in range(len(hashes[0])) if any(each[r] is not None for each in hashes))
