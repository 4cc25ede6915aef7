"""Proofs of steps: which replicas keep which states equal, and why others do not."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from popsr._program.building.gaps import Gap
from popsr._program.building.location import short_place
from popsr._program.op import Op
from popsr._session.protocol import Report
from popsr._support.extensions import call
from popsr._support.host.arguments import read_flag, read_text
from popsr._support.text.annotations import Annotation
from popsr._support.text.entry_points import public
from popsr._support.text.frames import source_line
from popsr._support.text.shown import shown
from popsr._support.text.summary import Judged, Summary, line
from popsr.analysis import Explanation, Lint, PartitionAnalysis, analyze
from popsr.analysis._axes import ReplicaAxes, shown_axes, shown_groups
from popsr.bridge._advice import Advice, advice_for
from popsr.bridge._proof.problems import difference_findings, lint_findings, undeclared_finding
from popsr.bridge._proof.proof_page import Section, page_of, write_page
from popsr.bridge._proof.proof_record import record_of
from popsr.bridge._proof.suspicion import SUSPICIOUS, Redundancy
from popsr.bridge._same import HEADER, Sameness, cells, sameness_of
from popsr.bridge._step.arguments import Argument, Step
from popsr.bridge._step.multiples import multiples
from popsr.bridge._step.values import Cause, ProvedValue, SourceLine, proved_result, proved_state
from popsr.errors import UnknownNameError
from popsr.replicas import Partition

__all__ = ["Cause", "Proof", "ProvedValue", "SourceLine", "proof_of"]


@public
@dataclass(frozen=True, repr=False, eq=False)
class Proof(Judged):
    """The facts about a step that hold for all data and any number of runs; made by ``popsr.prove``.

    A proof is true where it is ``ok``. ``print`` shows the causes of what is not, then the states, those that drift
    first; ``save_html`` writes all that is known. Everything holds for the program as it was analysed: of a step with
    gaps too, as their stand-ins differ wherever an operand does.

    Attributes:
        step: the step.
        facts: the analysis.
        states: every state with its declared and proved groups, in the order of the arguments.
        results: every result that has declared groups, likewise, and values inside that the step takes for equal.
        seeds: of states whose new value is rounded stochastically, the replicas that round with the same random bits.
        same: each state and result beside that of one device, where ``like`` asked for it.
    """

    step: Step
    facts: PartitionAnalysis = field(repr=False)
    states: tuple[ProvedValue, ...]
    results: tuple[ProvedValue, ...]
    seeds: Mapping[str, Partition]
    same: Sameness | None = field(default=None, repr=False)

    @functools.cached_property
    def lints(self) -> tuple[Lint, ...]:
        """All that the analysis finds suspicious, and gradients whose sum is missing or does not fit the others'."""
        redundancy = self._redundancy
        found = (
            redundancy.in_words(lint) for lint in self.facts.warnings if not redundancy.is_of_backward(lint)
        )
        drifting = (each.pending_lint for each in (*self.states, *self.results))
        pending = (lint for lint in drifting if lint is not None)
        return (*map(self._named, found), *pending, *map(self._named, multiples(self.step)))

    def _named(self, lint: Lint) -> Lint:
        """The lint in words of the step."""
        return replace(lint, text=self.step.names.text(lint.text))

    @functools.cached_property
    def _redundancy(self) -> Redundancy:
        return Redundancy(self.step)

    @property
    def ok(self) -> bool:
        """True if all states and results are equal in their declared groups, none may hang, and nothing is suspicious.

        False, too, of a step with a state whose initial values differ while no groups are declared of it. Where
        ``like`` asked for a comparison with one device, all must be the same, too.
        """
        return self.verdict == "ok"

    @property
    def verdict(self) -> Literal["ok", "suspicious", "unknown", "not ok"]:
        """The verdict.

        "not ok": a state or declared result may differ in its groups, a state is undeclared, a collective may hang, or
        a value differs from that of one device.
        "suspicious": replicas stay in step, but compute something else than the step's lines look like they mean.
        "unknown": a value could not be compared with that of one device.
        """
        beside = "same" if self.same is None else self.same.verdict
        if self._apart or beside == "differs":
            return "not ok"
        if self.suspicious:
            return "suspicious"
        return "ok" if beside == "same" else "unknown"

    @property
    def _apart(self) -> bool:
        """True if replicas may differ, or wait for each other in vain."""
        return bool(self.drifting or self.unequal or self.undeclared or self.hanging)

    @functools.cached_property
    def suspicious(self) -> tuple[Lint, ...]:
        """Lints L6, L7, L10 and L11, without collectives of equal values that cost bytes and nothing else."""
        found = self._lints(*SUSPICIOUS)
        return tuple(each for each in found if each.code != "L6" or not self._redundancy.is_harmless(each))

    @property
    def drifting(self) -> tuple[ProvedValue, ...]:
        """States that are not proved equal in their declared groups, each with its explanation."""
        return tuple(each for each in self.states if each.drifting)

    @property
    def undeclared(self) -> tuple[ProvedValue, ...]:
        """States whose initial values differ and that have no declared groups: a proof says nothing of them."""
        return tuple(each for each in self.states if each.undeclared)

    @property
    def unequal(self) -> tuple[ProvedValue, ...]:
        """Results that are not."""
        return tuple(each for each in self.results if each.drifting)

    @property
    def pending(self) -> tuple[Lint, ...]:
        """Lints L10 and L11: gradients whose sum over replicas is missing or does not fit."""
        return self._lints("L10", "L11")

    @property
    def redundant(self) -> tuple[Lint, ...]:
        """Lints L6: collectives of values that are equal already, whose sums are too large or whose bytes in vain.

        Those of the first kind are suspicious, and means of gradients that were reduced before.
        """
        return self._lints("L6")

    @property
    def hanging(self) -> tuple[Lint, ...]:
        """Lints L1: collectives that the replicas of a group need not reach together."""
        return self._lints("L1")

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """Ops that popsr lacks; stand-ins are analysed in their place, which loses nothing where ``is_exact``."""
        return self.step.gaps

    @functools.cached_property
    def problems(self) -> tuple[str, ...]:
        """Why the proof is not ``ok``: a line for each cause, which names all that it makes differ."""
        return self.problems_without(())

    def problems_without(self, codes: Collection[str]) -> tuple[str, ...]:
        """``problems`` without suspicious lints of some codes.

        Args:
            codes: of "L6", "L7", "L10" and "L11".
        """
        return tuple(each.text for each in self._findings(codes))

    def _findings(self, codes: Collection[str] = ()) -> tuple[Annotation, ...]:
        """``problems`` with their lines of the program."""
        found = difference_findings((*self.drifting, *self.unequal))
        if self.undeclared:
            found.insert(0, undeclared_finding(self.undeclared))
        suspicious = tuple(lint for lint in self.suspicious if lint.code not in codes)
        beside = () if self.same is None else self.same._findings()
        causes = (*found, *beside, *lint_findings(self._unnamed(self.hanging + suspicious), self.step))
        hints = (Annotation("hint", each, level="note") for each in self.step.hints)
        return (*hints, *causes) if causes else ()

    def _unnamed(self, lints: Iterable[Lint]) -> Iterator[Lint]:
        """Lints that a state which drifts or starts apart does not say already."""
        pending = {id(each.pending_lint) for each in (*self.drifting, *self.unequal)}
        apart = {each.path for each in (*self.drifting, *self.undeclared)}
        variables = {each.source for each in self.step.states if each.path in apart}
        for each in lints:
            if id(each) not in pending and not (each.code == "L7" and each.tensor in variables):
                yield each

    @functools.cached_property
    def advice(self) -> tuple[Advice, ...]:
        """The smallest change of those tried with which the whole step is in step; empty when none is known."""
        return advice_for(self) if self._apart or self.suspicious else ()

    def explain(self, path: str) -> Explanation | None:
        """Why the replicas of a declared group differ in a state or result; None when they are proved equal."""
        return self.value(path).explanation

    def lines(self, path: str) -> tuple[SourceLine, ...]:
        """The user's lines that a difference passes, from where a state or result is made back to the cause.

        Lines of ops of one line in a row are one; empty when the value is proved equal.

        Args:
            path: of a state or result.
        Raises:
            UnknownNameError: there is none.
        """
        why = self.value(path).explanation
        if why is None or why.root is None:
            return ()
        places = [*(step.location for step in why.steps), why.root.location]
        return tuple(
            SourceLine(place, source_line(place)) for place, _ in itertools.groupby(filter(None, places))
        )

    def value(self, path: str) -> ProvedValue:
        """The state or result of a path.

        Raises:
            UnknownNameError: there is none.
        """
        path = read_text("value: path", path)
        for each in (*self.states, *self.results):
            if each.path == path:
                return each
        self.step.argument(path)
        raise UnknownNameError(
            f"value: nothing is declared of {shown(path)}, expected a state or a result with groups"
        )

    def run(self, inputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Run the step on the simulated replicas; see ``BridgedStep.run``."""
        return self.step.run(inputs)

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Write the proof as one HTML file that needs nothing else: causes, states, explanations, lints.

        ``report`` has the program, its memory and its collectives, too.
        """
        write_page(path, page_of(self._verdict(), _sections(self)))

    def report(self, path: str | os.PathLike[str] | None = None) -> Report:
        """The proof and its program as one page: causes, states and explanations, then what a session's report has.

        Args:
            path: file to write, replaced completely or not at all: a page that needs nothing else, or the text if the
                name ends in ``.txt``.
        Returns:
            The report: ``str`` is the text, ``html`` the page. Of a program with ops that popsr lacks, it is the proof.
        Raises:
            FileError: it cannot be written.
        """
        step = self.step
        made: Report = call(
            "_tools", "Proof.report", self._verdict(), _sections(self), step.ir, step.names, path
        )
        return made

    def as_dict(self) -> dict[str, Any]:
        """The proof in lists, dictionaries, texts and numbers that JSON has; keys are only added to it."""
        return record_of(self)

    def _lints(self, *codes: str) -> tuple[Lint, ...]:
        return tuple(lint for lint in self.lints if lint.code in codes)

    def __repr__(self) -> str:
        return line(f"Proof[{self._verdict()}]")

    def _verdict(self) -> str:
        replicas = self.step.ir.replication_factor
        drifting = len(self.drifting)
        states = f"{len(self.states)} state{'' if len(self.states) == 1 else 's'}"
        parts = [f"{states} on {replicas} replica{'' if replicas == 1 else 's'}"]
        parts.append(f"{drifting} drift{'s' if drifting == 1 else ''}" if drifting else "none drifts")
        for number, what in (
            (len(self.undeclared), "undeclared state"),
            (len(self.unequal), "unequal result"),
            (len(self.pending), "pending sum"),
            (len(self.hanging), "hanging collective"),
            (len(self._lints("L7")), "mismatched reduction"),
            (len(self.redundant), "redundant collective"),
            (sum(not gap.is_exact for gap in self.gaps), "unsupported op"),
        ):
            if number:
                parts.append(f"{number} {what}{'' if number == 1 else 's'}")
        if self.same is not None:
            parts.append(self.same.headline)
        return f"{self._headline()}: {', '.join(parts)}"

    def _headline(self) -> str:
        """The verdict; of a step that can leave nothing different, that it writes nothing."""
        if self.verdict != "ok" or self.results or any(map(self._is_written, self.step.states)):
            return self.verdict
        return "no state is written"

    def _is_written(self, state: Argument) -> bool:
        """True if the step gives a state another value."""
        if state.result is not None:
            return state.result is not state.source
        assert state.tensor is not None
        return self.facts.values(state.tensor)[-1][1] is not None

    def _summary(self) -> Summary:
        rows = sorted((*self.states, *self.unequal), key=lambda each: each.equal and not each.undeclared)
        header, cells = _table(rows)
        return Summary(self._verdict(), header, cells, len(rows), sentences=self.sentences)

    @functools.cached_property
    def sentences(self) -> tuple[str, ...]:
        """``problems``, advice that was tried, and what the proof rests on."""
        tried = (f"advice, tried: {each}" for each in self.advice)
        beside = () if self.same is None else self.same.notes
        return (*self.problems, *tried, *self.step.notes, *beside)


_ORDER = {"L1": 0, "L11": 1, "L10": 2, "L6": 3}


def _table(
    values: Sequence[ProvedValue],
) -> tuple[tuple[str, ...], Iterator[tuple[object, ...]]]:
    """Names of the columns, and the cells of values; pending sums where there are some."""
    some = any(value.pending is not None for value in values)
    header = (
        "path",
        "dtype",
        "shape",
        "bytes",
        "declared",
        "proved",
        *(["pending"] if some else []),
        "drifts",
    )
    return header, (_cells(value, some) for value in values)


def _cells(value: ProvedValue, with_pending: bool) -> tuple[object, ...]:
    pending = "" if value.pending is None else shown_axes(value.pending.groups, value.axes)
    return (
        value.path,
        value.dtype.name,
        list(value.shape),
        value.nbytes,
        value.shown_declared,
        value.shown_proved,
        *([pending] if with_pending else []),
        "yes" if value.drifting else "undeclared" if value.undeclared else "no",
    )


def _sections(proof: Proof) -> list[Section]:
    """Tables of the HTML file."""
    sections = []
    if proof.problems:
        sections.append(Section("Problems", ("cause",), [(text,) for text in proof.problems]))
    if proof.advice:
        sections.append(Section("Advice", ("tried",), [(str(each),) for each in proof.advice]))
    notes = (*proof.step.notes, *(() if proof.same is None else proof.same.notes))
    if notes:
        sections.append(Section("Rests on", ("assumption",), [(text,) for text in notes]))
    if proof.same is not None:
        title = f"Beside {proof.same.like} ({proof.same.engine})"
        sections.append(Section(title, HEADER, map(cells, proof.same.values)))
        place = proof.same.place
        if place is not None:
            row = (short_place(place.location), place.source, place.text)
            sections.append(Section("Line that differs", ("line", "source", "text"), [row]))
    sections.append(Section("States", *_table(proof.states)))
    if proof.results:
        sections.append(Section("Results", *_table(proof.results)))
    for each in (*proof.drifting, *proof.unequal):
        if each.explanation is not None:
            header = ("line", "source", "op", "equal in")
            sections.append(Section(f"Why {each.path} differs", header, _why(each.explanation, each.axes)))
    lints = sorted(proof.lints, key=lambda lint: _ORDER.get(lint.code, 9))
    if lints:
        rows = [(lint.code, short_place(lint.location), lint.text) for lint in lints]
        sections.append(Section("Lints", ("code", "line", "text"), rows))
    if proof.seeds:
        seeds = [(path, shown_groups(each, proof.step.axes)) for path, each in proof.seeds.items()]
        sections.append(Section("Rounding seeds", ("state", "replicas with the same random bits"), seeds))
    for title, is_exact in (("Unsupported ops", False), ("Ops that only runs lack", True)):
        gaps = [each for each in proof.gaps if each.is_exact is is_exact]
        if gaps:
            ops = [(gap.op, short_place(gap.location), gap.count) for gap in gaps]
            sections.append(Section(title, ("op", "line", "times"), ops))
    return sections


def _why(why: Explanation, axes: ReplicaAxes | None) -> Iterator[tuple[str, str, str, str]]:
    """A row for each step: the line where it begins, and what of it is equal."""
    before = ""
    for step in why.steps:
        source = "" if step.location == before else source_line(step.location)
        place = "" if step.location == before else short_place(step.location)
        before = step.location
        yield place, source, step.text, shown_groups(step.partition, axes)


# Making one


def proof_of(step: Step, stochastic_rounding: bool, like: Any = None, exact: bool = True) -> Proof:
    """Analyse a step, and compare it with one device where ``like`` is given."""
    ir = step.ir
    read_flag("prove: exact", exact)
    if read_flag("prove: stochastic_rounding", stochastic_rounding):
        ir.options.enable_stochastic_rounding = True
    facts = analyze(ir)
    states = tuple(proved_state(facts, step, each) for each in step.states)
    results = tuple(
        proved_result(facts, step, each, each.grouping.partition)
        for each in (*step.results, *step.expected)
        if each.grouping
    )
    same = None if like is None else sameness_of(step, like, exact=exact)
    return Proof(step, facts, states, results, _seeds(step), same)


def _seeds(step: Step) -> dict[str, Partition]:
    """Seeds of the ops that make the new values of states, where they round stochastically."""
    if not step.ir.options.enable_stochastic_rounding:
        return {}
    found = {}
    for each in step.states:
        producer = None if each.result is None else step.ir._core.tensor(each.result._id).producer
        seeds = None if producer is None else Op(step.ir, producer).seed_partition
        if seeds is not None:
            found[each.path] = seeds
    return found
