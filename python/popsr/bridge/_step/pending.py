"""Gradients of an imported step that still are sums over replicas where they are used: the core finds them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from popsr._program.ir import Ir
from popsr._program.op import Op
from popsr._program.tensor import Tensor
from popsr._support.records import MissingSumInfo
from popsr.replicas import Partition

__all__ = ["PendingSum", "producer_of", "scope_of"]

_SCOPE = re.compile(r"(.+)/\w+_out(__t\d+)?$")
"""The name of the result of an op in a scope."""


@dataclass(frozen=True, slots=True)
class PendingSum:
    """A gradient of which each replica of a group has the part of its own data: a sum that is still to be taken.

    Attributes:
        made: ``file:line`` of the backward pass that makes it.
        used: ``file:line`` that uses it as if it were whole.
        groups: replicas over which the sum is missing.
        shape: shape of the gradient.
        scope: scope of the op that makes it, as in names of ops; empty without one.
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
    def of(ir: Ir, found: MissingSumInfo | None, groups: Partition) -> PendingSum | None:
        """The lines of what the core found; None of nothing."""
        if found is None:
            return None
        made, used, late = (
            None if op is None else Op(ir, op) for op in (found.made, found.used, found.nonlinear)
        )
        assert made is not None
        return PendingSum(
            made.location,
            made.location if used is None else used.location,
            groups,
            ir._core.tensor(found.gradient).shape,
            scope_of(made),
            "" if late is None else late.location,
        )

    @property
    def mended(self) -> str:
        """``file:line`` at or before which the sum is to be taken."""
        return self.nonlinear or self.used


def producer_of(t: Tensor) -> Op | None:
    """The op that makes a tensor."""
    producer = t.ir._core.tensor(t._id).producer
    return None if producer is None else Op(t.ir, producer)


def scope_of(op: Op) -> str:
    """Module or named scope that an op is of, as in its name: ``layers/0/attn``; empty outside of all."""
    found = _SCOPE.match(op.outputs[0].name) if op.outputs else None
    return "" if found is None else found[1]
