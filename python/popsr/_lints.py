"""How a session checks: which lints are errors, which claims are compared, what is reported to the logger."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np

from popsr._args import read_items
from popsr._shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError, ReplicaError

if TYPE_CHECKING:
    from popsr._host_rows import Divergence
    from popsr.ir import Ir
    from popsr.tensor import Variable

__all__ = ["GroupLint", "read_check", "read_strict", "refuse_lints"]

_logger = logging.getLogger("popsr")
_STRICT = ("L1", "L2", "L3")


def read_check(check: object) -> float:
    """The share of ops whose claims are compared; 0 for none."""
    if isinstance(check, (bool, np.bool_)):
        return float(check)
    if not isinstance(check, Real):
        raise ArgumentTypeError(
            f"Session: check is not a number, got {shown(check)}, expected a bool or 0 <= check <= 1"
        )
    if not 0 <= float(check) <= 1:
        raise AttributeValueError(
            f"Session: check is no share, got {shown(check)}, expected a bool or 0 <= check <= 1"
        )
    return float(check)


def read_strict(strict: object) -> frozenset[str]:
    """Codes of the lints that are errors."""
    if isinstance(strict, (bool, np.bool_)):
        return frozenset(_STRICT if strict else ())
    if isinstance(strict, str) or not isinstance(strict, Iterable):
        raise ArgumentTypeError(
            f"Session: strict is no bool, got {shown(strict)}, expected a bool or codes of lints"
        )
    codes = read_items("Session", "strict", strict, kind="codes of lints")
    if not all(isinstance(code, str) and code in _STRICT for code in codes):
        raise AttributeValueError(
            f"Session: strict is not about these lints, got {shown(list(codes))}, expected some of {list(_STRICT)}"
        )
    return frozenset(codes)


def refuse_lints(ir: Ir, errors: frozenset[str]) -> None:
    """Raise ReplicaError for the first lint that is an error; L3 is one only once a value is read."""
    from popsr.analysis import analyze

    if not errors & {"L1", "L2"}:
        return
    for lint in analyze(ir).warnings:
        if lint.code in errors - {"L3"}:
            raise ReplicaError(
                f"Session: lint {lint.code} is an error with strict, got {lint.location}: {lint.text}, expected a "
                "program without it"
            )


class GroupLint:
    """L3: the host gets the value of the first member of a group, and other members hold another one.

    Args:
        strict: it is an error.
    """

    def __init__(self, strict: bool) -> None:
        self._strict = strict
        self._reported: set[Variable] = set()

    def report(self, where: str, variable: Variable, found: Divergence, *, may_raise: bool = True) -> None:
        """Raise ReplicaError if strict and ``may_raise``; else log a warning, once per variable."""
        first, other, element = found
        text = f"replicas {first} and {other} of one group of '{variable.id}' differ at element {element}"
        if self._strict and may_raise:
            raise ReplicaError(
                f"{where}: one value per group is read back, got {text}, expected equal replicas or "
                "retrieval_mode='all_replicas'"
            )
        if variable in self._reported:
            return
        self._reported.add(variable)
        grouping = variable.replica_grouping
        _logger.warning(
            "L3 %s: one value per group is read back, but %s; that of replica %d stands for its group and %d of %d "
            "replicas are not seen: all-reduce what updates it, group its replicas otherwise, or use "
            "retrieval_mode='all_replicas'",
            where,
            text,
            first,
            grouping.num_replicas - grouping.num_groups,
            grouping.num_replicas,
        )
