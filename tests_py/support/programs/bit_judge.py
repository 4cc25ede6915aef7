"""Runs a random program in several ways, which must agree bit by bit, and refutes claims that are not true."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import _core, errors
from popsr.analysis import analyze
from tests_py.support.helpers import Array, bits, np_dtype
from tests_py.support.programs.random_operands import Axes, random_axes
from tests_py.support.programs.random_programs import RandomProgram, Step, random_steps

RUNS = 2
SEED = 5


class Found(AssertionError):
    """A fault in a program."""


@dataclass
class Tally:
    """Counts of the checked values."""

    programs: int = 0
    values: int = 0
    pairs: int = 0
    sessions: int = 0
    stopped: int = 0
    refused: int = 0

    def add(self, other: Tally) -> None:
        for name in vars(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass
class Outcome:
    """Results of one run: bits of streams and variables, or the text of the error that ended it."""

    outputs: list[Array] = field(default_factory=list)
    variables: list[Array] = field(default_factory=list)
    error: str = ""


@contextmanager
def kernels(level: str | None) -> Iterator[None]:
    """Sessions that are made inside run on that instruction-set level."""
    best = popsr.build_info()["instruction set"]
    if level is not None:
        _core.use_kernel_level(level)
    try:
        yield
    finally:
        _core.use_kernel_level(best)


def in_another_form(data: Array, how: int) -> Array:
    """The same numbers in other memory, or in a wider type that a session narrows."""
    if how % 4 == 1:
        return np.asfortranarray(data)
    if how % 4 == 2:
        return data.astype({"float32": "float64", "int32": "int64"}.get(data.dtype.name, data.dtype))
    if how % 4 == 3 and data.ndim:
        return np.repeat(data, 2, axis=-1)[..., ::2]
    return data


@contextmanager
def quiet() -> Iterator[None]:
    """Replicas may drift here: nothing says so."""
    logger = logging.getLogger("popsr")
    disabled, logger.disabled = logger.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            yield
    finally:
        logger.disabled = disabled


class BitJudge:
    """Of one program.

    Args:
        program: that was built.
        seed: of host data between runs; which ways are taken follows from it.
    """

    def __init__(self, program: RandomProgram, seed: int) -> None:
        self.program, self.ir, self.seed = program, program.ir, seed
        self.tally = Tally(programs=1)
        self.rng = np.random.default_rng(seed)
        self.inputs = [program.io.inputs, *(self._other_inputs() for _ in range(RUNS - 1))]
        self.writes = [self._writes(run) for run in range(RUNS)]

    def _other_inputs(self) -> dict[Any, Array]:
        """The same numbers in another order: seeds, offsets and flags stay what they may be."""
        return {
            stream: self.rng.permuted(data, axis=0) if data.ndim else data
            for stream, data in self.program.io.inputs.items()
        }

    def _writes(self, run: int) -> dict[popsr.Variable, Array]:
        """Writes of the host before a run: about half of the variables before all but the first."""
        chosen = [v for v in self.program.variables if run and self.rng.random() < 0.5]
        draw = self.program.draw
        return {
            v: np.asarray(draw(self.rng, v.shape_on_host, v.dtype.name), np_dtype(v.dtype.name))
            for v in chosen
        }

    def ways(self) -> list[tuple[str, dict[str, Any], str | None]]:
        """Name, options of the session, instruction-set level."""
        turn = self.seed % 2
        best = popsr.build_info()["instruction set"]
        # Products of v2 have other bits: it has no fused multiply-add.
        others = [level for level in _core.kernel_levels() if level != best and "v2" not in (level, best)]
        ways: list[tuple[str, dict[str, Any], str | None]] = [
            ("with sharing", {"num_threads": 2 + turn}, None),
            ("not optimised", {"optimise": False, "num_threads": 1 + turn}, None),
            ("checked", {"check": [True, 0.5][turn], "num_threads": 1}, None),
        ]
        if others:
            ways.append((f"on {others[-1]}", {"num_threads": 1}, others[-1]))
        return ways

    # Running

    def run(self, session: popsr.Session, run: int) -> Outcome:
        outcome = Outcome()
        if self.writes[run]:
            session.write_variables_data(self.writes[run])
        try:
            used = session.expected_inputs()
            inputs = {
                stream: in_another_form(data, self.tally.sessions - 1)
                for stream, data in self.inputs[run].items()
                if stream in used
            }
            results = session.run(inputs)
        except errors.InternalError:
            raise
        except popsr.Error as error:
            outcome.error = f"{type(error).__name__}: {error}"
            return outcome
        nothing = np.zeros(0)  # of a graph that is not run
        outcome.outputs = [bits(results.get(store.stream, nothing)) for store in self.program.stores]
        data = session.get_tensors_data(self.program.variables)
        outcome.variables = [bits(data[v]) for v in self.program.variables]
        return outcome

    def runs(self, options: dict[str, Any]) -> Iterator[Outcome]:
        self.tally.sessions += 1
        with popsr.Session(self.ir, **{"seed": SEED, **options}) as session:
            for run in range(RUNS):
                outcome = self.run(session, run)
                yield outcome
                if outcome.error:
                    return

    def judge(self) -> None:
        """Raise Found for the first thing that is wrong."""
        facts = analyze(self.ir)
        claims = self.claims(facts)
        expected = list(self.runs({"dedup": False, "num_threads": 1}))
        self.tally.stopped += bool(expected[-1].error)
        self.refute(claims, expected)
        for name, options, level in self.ways():
            with kernels(level):
                for run, (got, expect) in enumerate(zip(self.runs(options), expected, strict=True)):
                    self.compare(f"{name}, run {run}", got, expect)
        if self.claims(facts) != claims:
            raise Found("facts changed by running sessions")

    def compare(self, where: str, got: Outcome, expect: Outcome) -> None:
        if got.error != expect.error:
            raise Found(f"{where}: error {got.error!r}, without sharing {expect.error!r}")
        for k, (a, b) in enumerate(zip(got.outputs, expect.outputs, strict=True)):
            if not np.array_equal(a, b):
                raise Found(f"{where}: {self.program.stores[k].tensor} differs from that without sharing")
        for k, (a, b) in enumerate(zip(got.variables, expect.variables, strict=True)):
            if not np.array_equal(a, b):
                raise Found(f"{where}: {self.program.variables[k]} differs from that without sharing")

    # Claims

    def claims(self, facts: popsr.analysis.PartitionAnalysis) -> list[Any]:
        """Of each stored value, when it is stored."""
        claims = [facts.partition(store.tensor, before=store.op) for store in self.program.stores]
        for store, claim in zip(self.program.stores, claims, strict=True):
            if facts.partition(store.tensor, time=store.op._ir._core.op_position(store.op.id) - 1) != claim:
                raise Found(f"{store.tensor}: the claim before {store.op} is another than that at its time")
        return claims

    def refute(self, claims: Sequence[Any], expected: Sequence[Outcome]) -> None:
        replicas = self.ir.replication_factor
        for run, outcome in enumerate(expected):
            if outcome.error or replicas == 1:
                return
            for claim, store, values in zip(claims, self.program.stores, outcome.outputs, strict=True):
                if store.in_lockstep and values.ndim > 1:
                    self.refute_one(f"run {run}: {store.tensor}", claim, np.moveaxis(values, 1, 0))

    def refute_one(self, what: str, claim: Any, rows: Array) -> None:
        self.tally.values += 1
        for block in claim.blocks:
            for replica in block[1:]:
                self.tally.pairs += 1
                if not np.array_equal(rows[block[0]], rows[replica]):
                    raise Found(
                        f"{what} differs between replicas {block[0]} and {replica}, the claim is {claim}"
                    )


def judge(
    axes: Axes, steps: list[Step], seed: int, core: Any = None, judged: type[BitJudge] = BitJudge
) -> Tally:
    """Builds a program and judges it; what mode "popart" refuses is counted alone."""
    program = RandomProgram(axes, seed, core)
    with quiet():
        try:
            program.build(steps)
            analyze(program.ir)
        except errors.GraphError as error:
            if axes.rounding == "popart" and "mode 'popart'" in str(error):
                return Tally(refused=1)
            raise
        judge = judged(program, seed)
        judge.judge()
        if seed % 6 == 0 and axes.rounding != "off" and not axes.by_hand:
            _judge_in_another_mode(program, judge)
    return judge.tally


def _judge_in_another_mode(program: RandomProgram, judge: BitJudge) -> None:
    """Another mode on the same program: facts of the old one are refused, where anything rounds."""
    options, facts = program.ir.options, analyze(program.ir)
    seeds = [str(op.seed_partition) for op in program.ir.main_graph.ops]
    options.stochastic_rounding_mode = "identical" if program.axes.rounding != "identical" else "partition"
    if seeds != [str(op.seed_partition) for op in program.ir.main_graph.ops]:
        with pytest.raises(errors.GraphError, match="the program changed"):
            judge.claims(facts)
    judge.judge()


def program_of(seed: int) -> tuple[Axes, list[Step]]:
    """The program of that number."""
    rng = np.random.default_rng([20261121, seed])
    return random_axes(rng), random_steps(rng)
