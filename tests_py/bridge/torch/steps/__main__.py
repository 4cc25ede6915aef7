"""Programs in number: ``python -m tests_py.bridge.torch.steps --programs 5000 --world 2,4 --seed 0``."""

from __future__ import annotations

import argparse
import collections
import os
import re
import time

from tests_py.bridge.torch.steps.checking import Outcome, check_each, end_ranks
from tests_py.bridge.torch.steps.drawing import Program, draw
from tests_py.bridge.torch.steps.mixed import Mixed, draw_mixed
from tests_py.bridge.torch.steps.shrinking import shrunk
from tests_py.bridge.torch.steps.tracing import Tracer


def _reason(text: str) -> str:
    """An error without what is the program's own."""
    text = re.sub(r"\S*\.py(:\d+)?(, line \d+)?", "LINE", text)
    return re.sub(r"\d+", "N", re.sub(r"'[^']*'", "NAME", text))[:110]


def _processor_time() -> float:
    """Processor time of this process and of those that have ended, in seconds."""
    return sum(os.times()[:4])


class _Counts:
    """Numbers of a run."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.pairs: collections.Counter[str] = collections.Counter()
        self.reasons: collections.Counter[str] = collections.Counter()
        self.kinds: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)

    def add(self, outcome: Outcome) -> None:
        self.outcomes["programs"] += 1
        if outcome.claims.outcome not in outcome.kinds:
            self.outcomes[outcome.claims.outcome] += 1
        for kind in {kind for kind, _ in (*outcome.failures, *outcome.notes)}:
            self.outcomes[kind if kind in outcome.kinds else f"({kind})"] += 1
        self.pairs += outcome.pairs
        if outcome.claims.outcome == "refused":
            self.reasons[_reason(outcome.claims.text)] += 1
        for kind in set(outcome.program.kinds):
            for failure in {outcome.claims.outcome, *outcome.kinds}:
                self.kinds[kind][failure] += 1

    def show(self, began: float, whole: bool = False) -> None:
        share = self.pairs["proved"] / max(1, self.pairs["equal"])
        counts = f"{dict(self.outcomes)}, {dict(self.pairs)}, {share:.1%} of equal pairs proved"
        print(f"{time.time() - began:.0f} s, {_processor_time():.0f} s of CPU time: {counts}", flush=True)
        if whole:
            for reason, number in self.reasons.most_common(60):
                print(f"{number:6d} refused: {reason}")
            for kind, numbers in sorted(self.kinds.items()):
                print(f"{kind:16}", dict(numbers))


def main() -> None:
    """Check many programs; print each that fails, made small, and the counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--world", default="2,4")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default="", help="of statements, all if none is given")
    parser.add_argument("--wrapper", default=None, help="that makes the model, any if none is given")
    parser.add_argument(
        "--mixed", action="store_true", help="sharded forms, scalers, schedulers; kinds are forms"
    )
    parser.add_argument("--fault", default=None, help="a fault of mutants.py")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="after which a trace is taken to be endless"
    )
    parser.add_argument("--shrink", type=int, default=20, help="programs that are made small")
    parser.add_argument("--notes", action="store_true", help="print notes, too")
    asked = parser.parse_args()
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    worlds = tuple(int(each) for each in asked.world.split(","))
    kinds = [each for each in asked.kinds.split(",") if each]
    tracer, counts, began, left = Tracer(asked.fault, asked.seconds), _Counts(), time.time(), asked.shrink
    seeds = range(asked.seed, asked.seed + asked.programs)

    def drawn(seed: int) -> tuple[Program | Mixed, bool]:
        if asked.mixed:
            return draw_mixed(seed, worlds, kinds), seed % 4 == 0
        return draw(seed, worlds, kinds, asked.wrapper), True

    for seed, outcome in zip(seeds, check_each(map(drawn, seeds), tracer), strict=True):
        counts.add(outcome)
        if outcome.failures:
            text = outcome.failures[0]
            print(f"seed {seed} {outcome.program.kinds}: {text[0]}: {text[1]:.300}", flush=True)
            if left and "endless" not in outcome.kinds:
                left -= 1
                another = Tracer(asked.fault, asked.seconds)
                small = shrunk(outcome, another)
                another.close()
                print(
                    small.program.options(), small.failures[:3], "\n".join(_own(small)), sep="\n", flush=True
                )
        if asked.notes and outcome.notes:
            print(f"seed {seed} {outcome.program.kinds}: note: {outcome.notes[0]}", flush=True)
        if asked.notes and outcome.claims.outcome == "refused":
            print(f"seed {seed} {outcome.program.kinds}: refused: {outcome.claims.text}", flush=True)
        if counts.outcomes["programs"] % 50 == 0:
            counts.show(began)
    tracer.close()
    for world in worlds:
        end_ranks(world)
    counts.show(began, whole=True)


def _own(outcome: Outcome) -> list[str]:
    """Lines of a program that others do not have."""
    program = outcome.program
    if isinstance(program, Mixed):
        return [program.text().partition("class Keeper")[2]]
    lines = [
        f"wrapper {program.wrapper!r}, optimizer {program.optimizer}, data of {program.key}, {program.special}"
    ]
    for each in program.statements:
        lines += [f"    init: {line}" for line in each.setup.splitlines()]
        lines += [f"    step: {line}" for line in each.body.splitlines()]
    return lines


if __name__ == "__main__":
    main()
