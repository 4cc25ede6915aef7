"""``python -m tests_py.bridge.advice FIRST COUNT``: follow the advice about wrong steps, and print what came of it."""

from __future__ import annotations

import sys
from collections import Counter

from tests_py.bridge.advice.drawing import drawn
from tests_py.bridge.advice.following import follow

STATES = ("right", "silent", "unseen", "wrong")


def main(first: int = 0, count: int = 1000) -> int:
    """Print a row for each mistake, and every wrong advice."""
    found: Counter[tuple[str, str]] = Counter()
    for seed in range(first, first + count):
        each = follow(drawn(seed))
        found[each.recipe.fault, each.state] += 1
        if each.state == "wrong":
            print(seed, each, flush=True)
        if (seed - first) % 500 == 499:
            print(
                "after",
                seed - first + 1,
                {of: sum(n for (_, s), n in found.items() if s == of) for of in STATES},
                flush=True,
            )
    print("mistake", *STATES)
    for fault in sorted({fault for fault, _ in found}):
        print(fault, *(found[fault, state] for state in STATES))
    print("all", *_sums(found))
    return _sums(found)[-1]


def _sums(found: Counter[tuple[str, str]]) -> list[int]:
    return [sum(n for (_, of), n in found.items() if of == state) for state in STATES]


if __name__ == "__main__":
    sys.exit(1 if main(*map(int, sys.argv[1:])) else 0)
