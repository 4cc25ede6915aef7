"""Verdicts about planted bugs, for the table in docs/bridge.md."""

from __future__ import annotations

from dataclasses import dataclass

from popsr.bridge import Proof

__all__ = ["Verdict", "alarms", "verdict_of"]


@dataclass(frozen=True)
class Verdict:
    """The verdict of popsr about a step.

    Attributes:
        found: whether it says that something is wrong.
        names_line: whether the line in question is among those that it names.
        words: the finding, in few words.
    """

    found: bool
    names_line: bool
    words: str


def alarms(proof: Proof) -> list[str]:
    """All that would make a user look."""
    assert bool(proof) is not bool(proof.problems)
    return list(proof.problems)


def verdict_of(proof: Proof, place: str) -> Verdict:
    """The verdict about a bug at ``file:line``."""
    lints = (*proof.hanging, *proof.suspicious)
    paths = [each.explanation for each in (*proof.drifting, *proof.unequal) if each.explanation is not None]
    lines = {step.location for path in paths for step in path.steps}
    lines |= {path.root.location for path in paths if path.root is not None}
    lines |= {lint.location for lint in lints}
    return Verdict(bool(alarms(proof)), place in lines, _words(proof))


def _words(proof: Proof) -> str:
    drifting, unequal = len(proof.drifting), len(proof.unequal)
    codes = sorted({lint.code for lint in (*proof.hanging, *proof.suspicious)})
    why = ", ".join(codes)
    if drifting:
        why = f"{drifting} of {len(proof.states)} states drift"
    elif unequal:
        why = f"{unequal} unequal result{'' if unequal == 1 else 's'}"
    return f"{proof.verdict}: {why}" if why else proof.verdict
