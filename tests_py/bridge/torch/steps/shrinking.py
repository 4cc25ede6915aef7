"""Programs that fail, made small: parts are taken away while what is left fails in the same way."""

from __future__ import annotations

from tests_py.bridge.torch.steps.checking import Outcome, check
from tests_py.bridge.torch.steps.tracing import Tracer

__all__ = ["shrunk"]


def shrunk(outcome: Outcome, tracer: Tracer, tries: int = 60) -> Outcome:
    """A smaller program with a failure of the same kind.

    Args:
        outcome: of a program that fails.
        tracer: traces the others.
        tries: number of programs that are tried.
    """
    wanted = outcome.kinds
    progress = True
    while progress and tries > 0:
        progress = False
        for smaller in outcome.program.without():
            tries -= 1
            try:
                compile(smaller.text(), "program", "exec")
            except SyntaxError:
                continue
            found = check(smaller, tracer, runs=False)
            if found.kinds & wanted and not any(kind == "torch raises" for kind, _ in found.notes):
                outcome, progress = found, True
                break
            if tries <= 0:
                break
    return outcome
