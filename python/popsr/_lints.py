"""Lints that a session reports: to the logger once per variable, or as errors with ``strict``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from popsr.errors import ReplicaError

if TYPE_CHECKING:
    from popsr._host_rows import Divergence
    from popsr.tensor import Variable

__all__ = ["GroupLint"]

_logger = logging.getLogger("popsr")


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
