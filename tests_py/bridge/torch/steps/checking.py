"""Claims about programs, held against real ranks bit by bit."""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from tests_py.bridge.torch import gloo
from tests_py.bridge.torch.steps.drawing import Program
from tests_py.bridge.torch.steps.mixed import Mixed
from tests_py.bridge.torch.steps.running import Rows, run_text
from tests_py.bridge.torch.steps.tracing import Claims, Tracer

__all__ = ["Outcome", "check", "check_each", "end_ranks"]

_RACES = ("async_op", "empty", "new_empty", "resize_", "skip_init", "Tensor(4)")
_TOLERANCE = 1e-3


@dataclass
class Outcome:
    """Result of a program.

    Attributes:
        program: the program.
        claims: of popsr.
        failures: what must not be, each a kind and a line.
        notes: what differs without being false: popsr's run, or an error of torch that popsr does not foresee.
        pairs: claims, pairs of ranks that are equal after all steps, and those of them that are proved.
    """

    program: Program | Mixed
    claims: Claims
    failures: list[tuple[str, str]] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    pairs: collections.Counter[str] = field(default_factory=collections.Counter)

    @property
    def kinds(self) -> set[str]:
        """Kinds of its failures."""
        return {kind for kind, _ in self.failures}


def check(program: Program | Mixed, tracer: Tracer, runs: bool = True) -> Outcome:
    """Trace a program and run it on real ranks."""
    return next(check_each([(program, runs)], tracer))


def check_each(programs: Iterable[tuple[Program | Mixed, bool]], tracer: Tracer) -> Iterator[Outcome]:
    """Trace programs and run them on real ranks; each is traced while ranks run the one before.

    Args:
        programs: each with True if popsr runs it, too.
        tracer: traces nothing else meanwhile.
    """
    waiting = iter(programs)
    current = next(waiting, None)
    if current is not None:
        tracer.send(*current)
    while current is not None:
        claims = tracer.receive()
        following = next(waiting, None)
        if following is not None:
            tracer.send(*following)
        yield _compared(current[0], claims)
        current = following


def _compared(program: Program | Mixed, claims: Claims) -> Outcome:
    outcome = Outcome(program, claims)
    if claims.outcome == "proved":
        rows, raised = _real(program)
        steps = list(zip(*rows, strict=False))
        if raised:
            outcome.notes.append(("torch raises", " ".join(raised.split())[-200:]))
        raced = any(each in program.text() for each in _RACES)
        _compare(outcome, steps, raced)
        if not raised and not raced:
            _count_alarms(outcome, steps)
        if not raced:
            _compare_runs(outcome, steps)
    elif claims.outcome == "untyped" and _raises(program, claims.text):
        outcome.notes.append(("own error", claims.text))
    elif claims.outcome != "refused":
        outcome.failures.append((claims.outcome, claims.text))
    return outcome


def _raises(program: Program | Mixed, text: str) -> bool:
    """True for an error of the program's own, by which ranks make no model, either."""
    rows, raised = _real(program)
    return not any(rows) and text.partition(":")[0] in (raised or "")


def _real(program: Program | Mixed) -> tuple[list[list[Rows]], str | None]:
    """States and results of each rank after each step, and an error that ends them."""
    try:
        made = gloo.run(program.world, run_text, program.text(), program.seeds)
    except gloo.RankError as error:
        return [[] for _ in range(program.world)], str(error)
    raised = next((error for _, error in made if error), None)
    if raised:  # connections of ranks that left early may be of no more use
        end_ranks(program.world)
    return [found for found, _ in made], raised


def end_ranks(world: int) -> None:
    """End the processes of ranks; the next program starts others."""
    with contextlib.suppress(gloo.RankError):
        gloo.run(world, os._exit, 0)


def _compare(outcome: Outcome, steps: list[tuple[Rows, ...]], raced: bool) -> None:
    """Each claim of equality, after each step."""
    world = outcome.program.world
    for path, labels in outcome.claims.labels.items():
        of_steps = [[rows.get(path) for rows in ranks] for ranks in steps]
        for a, b in itertools.combinations(range(world), 2):
            equal = bool(of_steps) and all(values[a] == values[b] for values in of_steps)
            claimed = labels[a] == labels[b]
            if claimed:
                outcome.pairs["claims"] += len(of_steps)
                number = next((k for k, values in enumerate(of_steps) if values[a] != values[b]), None)
                if number is not None:
                    values = [_shown(values) for values in (of_steps[number][a], of_steps[number][b])]
                    outcome.failures.append(
                        (
                            "false",
                            f"{path} is claimed equal on ranks {a} and {b}: after step {number + 1} {values}",
                        )
                    )
                    break
            if equal and not raced and of_steps[0][a] is not None:
                outcome.pairs["equal"] += 1
                outcome.pairs["proved"] += claimed
    _compare_verdict(outcome, steps)


def _compare_verdict(outcome: Outcome, steps: list[tuple[Rows, ...]]) -> None:
    """A proof that is ok without declared groups says that ranks with one part of a parameter hold it alike."""
    if not outcome.claims.ok:
        return
    for number, ranks in enumerate(steps):
        trained = [
            path
            for path in ranks[0]
            if f"place of {path}" in ranks[0] and ("lin." in path or "head." in path)
        ]
        for path in trained:
            held = {(rows.get(f"place of {path}"), rows.get(path)) for rows in ranks}
            if len(held) > len({place for place, _ in held}):
                text = f"the proof is ok, and {path} differs after step {number + 1}"
                outcome.failures.append(("false ok", text))
                return


def _count_alarms(outcome: Outcome, steps: list[tuple[Rows, ...]]) -> None:
    """Note a step whose states may all differ after the proof, and are equal on ranks of one place."""
    drifting = [path for path in outcome.claims.drifting if all(path in ranks[0] for ranks in steps)]
    for path in drifting:
        owner = path.removeprefix("optimizer.").rpartition(".")[0] if path.startswith("optimizer.") else path
        for ranks in steps:
            held = {(rows.get(f"place of {owner}"), rows.get(path)) for rows in ranks}
            if len(held) > len({place for place, _ in held}):
                return
    if drifting:
        outcome.notes.append(("false alarm", ", ".join(drifting[:4])))


def _shown(value: gloo.Bits | None) -> object:
    if value is None:
        return None
    dtype = value[0].removeprefix("torch.")
    try:
        flat = np.frombuffer(value[2], dtype)
    except TypeError:
        return value[2].hex()
    return flat[:4].tolist()


def _compare_runs(outcome: Outcome, steps: list[tuple[Rows, ...]]) -> None:
    """popsr's own run beside torch's."""
    for number, (made, ranks) in enumerate(zip(outcome.claims.runs, steps, strict=False)):
        for path, rows in _pairs(made, ranks):
            got, expected = rows
            if got.shape != expected.shape:
                outcome.notes.append(("wrong run", f"{path}: shapes {got.shape} and {expected.shape}"))
                return
            scale = max(1.0, float(np.abs(np.nan_to_num(expected, posinf=1, neginf=1)).max(initial=0)))
            if not np.allclose(got, expected, rtol=0, atol=_TOLERANCE * scale, equal_nan=True):
                texts = [each.ravel()[:8].tolist() for each in rows]
                text = f"{path} after step {number + 1}: {texts[0]}, torch {texts[1]}"
                outcome.notes.append(("wrong run", text))
                return


def _pairs(
    made: dict[str, np.ndarray], ranks: tuple[Rows, ...]
) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    for path, got in made.items():
        values = [rows.get(path) for rows in ranks]
        if any(value is None for value in values):
            continue
        try:
            dtypes = [np.dtype(value[0].removeprefix("torch.")) for value in values if value]
        except TypeError:
            continue
        expected = np.stack(
            [
                np.frombuffer(v[2], d).reshape(v[1]).astype(float)
                for v, d in zip(values, dtypes, strict=True)
                if v
            ]
        )
        wanted = np.asarray(got, float)
        if wanted.shape == expected.shape[1:]:
            wanted = np.broadcast_to(wanted, expected.shape)
        yield path, (wanted, expected)
