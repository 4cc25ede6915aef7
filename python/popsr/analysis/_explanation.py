"""Explanations and lints: the cause of a difference between replicas, and probable mistakes in a program."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol, cast

from popsr import _core
from popsr._program.op import Op
from popsr._support.records import MissingSumInfo, StepKind
from popsr._support.text.entry_points import public
from popsr._support.text.html import Row
from popsr.analysis._explanation_html import explanation_html
from popsr.errors import ArgumentTypeError

if TYPE_CHECKING:
    from popsr._program.ir import Ir
    from popsr._program.tensor import Tensor
    from popsr.replicas import Partition

__all__ = ["Explanation", "ExplanationRoot", "ExplanationStep", "Lint", "RootKind", "StepKind", "Words"]

RootKind = Literal[
    "stream",
    "variable",
    "uninitialised",
    "own_value",
    "part",
    "zeros",
    "seeds",
    "divergence",
    "position",
    "undeclared",
]


@public
@dataclass(frozen=True, slots=True)
class ExplanationStep:
    """A value in which two replicas differ: because they, or two others, differ in the value of the next step.

    Attributes:
        kind: an "op" computes it; it is in memory that an op writes ("write", or "store" to remote memory); a "call"
            returns it or leaves it by reference; it is an "argument" of a call; what the "iteration" or the "run"
            before left; or what a program can "start" with.
        tensor: the tensor, or the variable whose memory it is in.
        op: what computes, writes or passes it; None for variables between runs.
        location: ``file:line`` in the user's program.
        replicas: the two that differ here.
        partition: replicas that are proved to agree on it.
        text: the step in words.
    """

    kind: StepKind
    tensor: Tensor
    op: Op | None
    location: str
    replicas: tuple[int, int]
    partition: Partition
    text: str


@public
@dataclass(frozen=True, slots=True)
class ExplanationRoot:
    """The cause of a difference between two replicas.

    Attributes:
        kind: a "stream" with data for each replica; a "variable" of several groups; "uninitialised" memory; an op that
            gives each replica its "own_value"; a collective that gives each member its "part", or "zeros" to those
            that nobody sends to; "seeds" of stochastic rounding; "divergence", a conditional that may send them into
            different branches, or their "position" in a stream that such branches load; an op that is "undeclared",
            without a partition rule.
        location: ``file:line`` in the user's program.
        text: the cause in words.
    """

    kind: RootKind
    location: str
    text: str


class Words(Protocol):
    """Names of values and of groups of replicas in the words of those who wrote the program."""

    def text(self, text: str) -> str:
        """A text of the analysis with these names."""

    def step(self, step: ExplanationStep) -> str:
        """A step, which has the text of the analysis, in these words."""


@public
class Explanation:
    """The reason why two replicas are not proved equal, or are; made by ``PartitionAnalysis.explain``.

    ``str()`` is the whole answer, a line a step; long paths lack their middle.
    """

    def __init__(self, ir: Ir, tensor: Tensor, replicas: tuple[int, int], found: _core.Explanation) -> None:
        """Of what the core found."""
        if not isinstance(found, _core.Explanation):
            raise ArgumentTypeError("Explanation: cannot be constructed, expected facts.explain(t, r, s)")
        self._ir, self._tensor, self._replicas, self._found = ir, tensor, replicas, found
        self._text = found.text()
        self._words: Words | None = None

    def _in(self, words: Words) -> Explanation:
        """Let texts have other names of values and of groups of replicas."""
        self._words = words
        return self

    def _named(self, text: str) -> str:
        return text if self._words is None else self._words.text(text)

    @property
    def tensor(self) -> Tensor:
        """The tensor that was asked about."""
        return self._tensor

    @property
    def replicas(self) -> tuple[int, int]:
        """The two replicas."""
        return self._replicas

    @property
    def equal(self) -> bool:
        """True if they are proved equal."""
        return self._found.root is None

    @property
    def partition(self) -> Partition:
        """Replicas that are proved to agree on it."""
        return self._found.partition

    @functools.cached_property
    def steps(self) -> tuple[ExplanationStep, ...]:
        """From the tensor to the root, a step an op; of equal replicas one step, which says why they are."""
        words = self._words
        return (
            self._raw if words is None else tuple(replace(each, text=words.step(each)) for each in self._raw)
        )

    @functools.cached_property
    def _raw(self) -> tuple[ExplanationStep, ...]:
        """Steps with the text of the analysis."""
        return tuple(
            ExplanationStep(kind, self._ir._tensor(id_), _op(self._ir, op), location, (r, s), partition, text)
            for kind, id_, op, location, r, s, partition, text in self._found.steps()
        )

    @property
    def root(self) -> ExplanationRoot | None:
        """Cause of the difference; None when they are equal."""
        found = self._found
        if self.equal:
            return None
        return ExplanationRoot(
            cast("RootKind", found.root), found.root_location, self._named(found.root_text)
        )

    @property
    def suggestion(self) -> str:
        """A change that would make them equal; empty when they are."""
        return self._named(self._found.suggestion)

    def _missing_sum(self, declared: Partition) -> MissingSumInfo | None:
        """The gradient of a marked backward pass on the path; None without one."""
        return self._found.missing_sum(declared)

    @functools.cached_property
    def _told(self) -> str:
        """The whole answer in words: the text of the analysis, with each of its steps told anew."""
        parts, rest = [], self._text
        for raw, step in zip(self._raw, self.steps, strict=True):
            place = f"\n  {raw.location or '?'}: "
            before, found, after = rest.partition(place + raw.text)
            if found:  # long paths lack their middle
                parts += [self._named(before), place + step.text]
                rest = after
        return "".join([*parts, self._named(rest)])

    def __str__(self) -> str:
        return self._text if self._words is None else self._told

    def __repr__(self) -> str:
        r, s = self._replicas
        return (
            f"Explanation[{self._tensor!r} on replicas {r} and {s}: {'equal' if self.equal else 'not equal'}]"
        )

    def to_html(self) -> str:
        """The cause of the difference, and the path to it as an HTML table, a row a step.

        The middle of a long path opens on a click.
        """
        return self._html(whole=True)

    def _repr_html_(self) -> str:
        """``to_html``, without the middle of paths of hundreds of steps."""
        return self._html(whole=False)

    def _html(self, *, whole: bool) -> str:
        rows = [
            Row(
                step.location,
                step.text,
                step.partition,
                "" if self.equal else f"({step.replicas[0]} and {step.replicas[1]} differ)",
            )
            for step in self.steps
        ]
        title, *_ = str(self).split("\n", 1)
        root = None if self.root is None else (self.root.location, self.root.text)
        return explanation_html(title, root, self.suggestion, rows, whole=whole)


@public
@dataclass(frozen=True, slots=True)
class Lint:
    """Something suspicious; programs run all the same, see ``PartitionAnalysis.warnings``.

    Attributes:
        code: "L1" to "L13".
        op: the op that it is about, if any.
        tensor: the tensor that it is about, if any.
        location: ``file:line`` in the user's program.
        cost: what it costs, in ``unit``.
        unit: "groups", "bytes", "replicas", "values", "seeds", "times", "pairs" or "variables".
        text: what is wrong and what to do about it.
    """

    code: str
    op: Op | None
    tensor: Tensor | None
    location: str
    cost: int
    unit: str
    text: str

    def __str__(self) -> str:
        return f"{self.code} {self.location}: {self.text}"

    @property
    def help(self) -> str:
        """The command that prints what causes such a lint, and what helps."""
        return f"python -m popsr help {self.code}"


def lint_of(ir: Ir, found: tuple[int, int | None, int | None, str, int, str, str]) -> Lint:
    """From what the core says."""
    code, op, tensor, location, cost, unit, text = found
    return Lint(
        f"L{code}", _op(ir, op), None if tensor is None else ir._tensor(tensor), location, cost, unit, text
    )


def _op(ir: Ir, id_: int | None) -> Op | None:
    return None if id_ is None else Op(ir, id_)
