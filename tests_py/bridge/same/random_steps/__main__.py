"""Verdicts on random right steps and a mutant of each: ``python -m tests_py.bridge.same.random_steps FIRST COUNT``."""

from __future__ import annotations

import argparse
import time
import warnings
from collections import Counter

import tests_py.bridge.jax.conftest  # noqa: F401 - sets what JAX reads when it makes its first array
from tests_py.bridge.same.random_steps.checks import check_mutant, check_right


def main() -> None:
    """Print each step on which popsr does not say what is so, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("count", type=int, help="number of steps")
    parser.add_argument("--truth", type=int, default=20, metavar="N", help="ask JAX of each N-th right step")
    parser.add_argument("--mutants", type=int, default=0, metavar="N", help="a mutant of each N-th step")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    start = time.process_time()
    warnings.simplefilter("ignore")
    try:
        for number in range(options.count):
            seed = options.first + number
            found = [check_right(seed, ask=options.truth > 0 and number % options.truth == 0)]
            if options.mutants and number % options.mutants == 0:
                found.append(check_mutant(seed))
            for each in found:
                counts[each.outcome] += 1
                if each.text:
                    print(f"{seed}: {each.outcome}: {each.text}", flush=True)
            if number % 20 == 19:
                print(summary(counts, start), flush=True)
    finally:
        print(summary(counts, start), flush=True)


def summary(counts: Counter[str], start: float) -> str:
    """Number of each outcome so far, and processor time."""
    said = ", ".join(f"{number} {outcome}" for outcome, number in sorted(counts.items()))
    return f"{said}, {time.process_time() - start:.0f} s"


if __name__ == "__main__":
    main()
