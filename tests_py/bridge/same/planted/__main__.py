"""Figures of planted bugs: ``python -m tests_py.bridge.same.planted [--torch] [--float64] [words of names]``."""

from __future__ import annotations

import argparse
import importlib
import warnings
from typing import Any

from tests_py.bridge.same.planted.cases import at_own_line, at_right_line, matching


def of_framework(name: str) -> tuple[Any, Any, Any]:
    """The steps of a framework, popsr's verdict on one, and the names of its states."""
    if name == "jax":
        importlib.import_module(
            "tests_py.bridge.jax.conftest"
        )  # sets what JAX reads when it makes its first array
    table, said, truth = (
        importlib.import_module(f"tests_py.bridge.same.planted.{each}")
        for each in (f"{name}_table", f"said_{name}", f"truth_{name}")
    )
    return table.STEPS, said.said, truth.names_of


def main() -> None:
    """Print each case in which popsr and the table disagree, which the framework's runs agree with, and the totals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", action="store_true", help="steps of PyTorch in place of JAX")
    parser.add_argument("--float64", action="store_true", help="beside one device in float64")
    parser.add_argument("words", nargs="*", help="parts of names of steps")
    options = parser.parse_args()
    all_steps, said, names_of = of_framework("torch" if options.torch else "jax")
    steps = [
        each for each in all_steps if not options.words or any(word in each.name for word in options.words)
    ]
    counts = dict.fromkeys(
        (
            "right", "alarms", "bugs", "found", "exactly", "at the line", "without its caller", "repaired",
            "repaired there", "unknown", "called same",
        ),
        0,
    )  # fmt: skip
    seconds = 0.0
    warnings.simplefilter("ignore")
    for right in steps:
        for bug in (None, *right.bugs):
            program = right.make(bug.name if bug else "")
            wrong = matching(bug.wrong, names_of(program)) if bug else set()
            try:
                verdict = said(program, exact=not options.float64)
            except Exception as error:
                print(
                    f"{right.name} | {bug.name if bug else 'right'}: {type(error).__name__}: {error}",
                    flush=True,
                )
                counts["unknown"] += 1
                continue
            seconds += verdict.seconds
            counts["right" if bug is None else "bugs"] += 1
            counts["unknown"] += bool(verdict.unknown)
            if bug is None:
                counts["alarms"] += bool(verdict.differing)
            else:
                here = at_right_line(right, bug, verdict.place)
                counts["found"] += bool(verdict.differing)
                counts["exactly"] += verdict.differing == wrong
                counts["at the line"] += here
                counts["without its caller"] += at_own_line(right, bug, verdict.place)
                counts["repaired"] += bool(verdict.repair)
                counts["repaired there"] += at_right_line(right, bug, verdict.repair)
                counts["called same"] += not verdict.differing and not verdict.unknown
                if not here:
                    print(f"{right.name} | {bug.name}: place {verdict.place or 'not named'}", flush=True)
            if verdict.differing != wrong or verdict.unknown:
                more, fewer = sorted(verdict.differing - wrong), sorted(wrong - verdict.differing)
                print(
                    f"{right.name} | {bug.name if bug else 'right'}: too many {more}, too few {fewer}",
                    flush=True,
                )
                print(f"    unknown: {sorted({*verdict.unknown.values()})}", flush=True)
        print(", ".join(f"{value} {key}" for key, value in counts.items()), f"{seconds:.0f} s", sep=", ")


if __name__ == "__main__":
    main()
