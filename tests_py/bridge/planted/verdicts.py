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
    lints = [str(lint) for lint in proof.lints if lint.code in ("L1", "L6", "L7", "L10", "L11")]
    return [*proof.problems, *lints]


def verdict_of(proof: Proof, place: str) -> Verdict:
    """The verdict about a bug at ``file:line``."""
    lints = [lint for lint in proof.lints if lint.code in ("L1", "L6", "L7", "L10", "L11")]
    paths = [each.explanation for each in (*proof.drifting, *proof.unequal) if each.explanation is not None]
    lines = {step.location for path in paths for step in path.steps}
    lines |= {path.root.location for path in paths if path.root is not None}
    lines |= {lint.location for lint in lints}
    return Verdict(bool(alarms(proof)), place in lines, _words(proof))


def _words(proof: Proof) -> str:
    drifting, unequal = len(proof.drifting), len(proof.unequal)
    if drifting:
        return f"{drifting} of {len(proof.states)} states drift"
    if unequal:
        return f"{unequal} unequal result{'' if unequal == 1 else 's'}"
    codes = sorted({lint.code for lint in proof.lints if lint.code in ("L1", "L6", "L7", "L10", "L11")})
    return ", ".join(codes) or "nothing"
