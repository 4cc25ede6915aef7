"""Gradients of an imported step that still are sums over replicas where they are used: the core finds them."""

from __future__ import annotations

from dataclasses import dataclass

from popsr._program.op import Op
from popsr._support.records import MissingSumInfo
from popsr.bridge._step.arguments import Step
from popsr.replicas import Partition

__all__ = ["PendingSum"]


@dataclass(frozen=True, slots=True)
class PendingSum:
    """A gradient of which each replica of a group has the part of its own data: a sum that is still to be taken.

    Attributes:
        made: ``file:line`` of the backward pass that makes it.
        used: ``file:line`` that uses it as if it were whole.
        groups: replicas over which the sum is missing.
        shape: shape of the gradient.
        scope: module or named scope of the op that makes it; empty without one.
        nonlinear: ``file:line`` of a function of it that is not linear, after which a sum comes too late; empty when
            the value depends on it linearly.
    """

    made: str
    used: str
    groups: Partition
    shape: tuple[int, ...]
    scope: str
    nonlinear: str

    @staticmethod
    def of(step: Step, found: MissingSumInfo | None, groups: Partition) -> PendingSum | None:
        """The lines of what the core found; None of nothing."""
        if found is None:
            return None
        made, used, late = (
            None if op is None else Op(step.ir, op) for op in (found.made, found.used, found.nonlinear)
        )
        assert made is not None
        return PendingSum(
            made.location,
            made.location if used is None else used.location,
            groups,
            step.ir._core.tensor(found.gradient).shape,
            step.names.scope(made),
            "" if late is None else late.location,
        )

    @property
    def mended(self) -> str:
        """``file:line`` at or before which the sum is to be taken."""
        return self.nonlinear or self.used
