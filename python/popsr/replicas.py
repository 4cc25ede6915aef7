"""Sets of replicas: which agree (Partition), and which talk or share values (the others).

``ReplicaGrouping`` is PopXL's class of groups. ``CommGroup`` and ``VariableSettings`` are PopART's; both become a
ReplicaGrouping once the number of replicas is known, and each grouping is a Partition::

    CommGroup(CommGroupType.Orthogonal, 4).to_replica_grouping(16).partition
"""

from typing import TYPE_CHECKING

from popsr._core import (
    CommGroup,
    CommGroupType,
    Partition,
    ReplicaGrouping,
    VariableRetrievalMode,
    VariableSettings,
)
from popsr._support.extensions import member
from popsr._support.lazy import names_only
from popsr._support.text.suggestions import unknown_attribute

__all__ = [
    "CommGroup",
    "CommGroupType",
    "Partition",
    "ReplicaGrouping",
    "VariableRetrievalMode",
    "VariableSettings",
]

# The core makes the classes; programs, pickles and documentation find them here.
for _class in (CommGroup, CommGroupType, Partition, ReplicaGrouping, VariableRetrievalMode, VariableSettings):
    _class.__module__ = __name__
for _class in (Partition, ReplicaGrouping, VariableSettings):
    _class._repr_html_ = member("_tools", "_repr_html_")  # type: ignore[union-attr]
    _class.__treescope_repr__ = member("_tools", "__treescope_repr__")  # type: ignore[union-attr]
del _class


def _partition(labels: tuple[int, ...]) -> Partition:
    """A Partition of a pickle."""
    return Partition.from_labels(labels)


def _grouping(assignment: list[int]) -> ReplicaGrouping:
    """A ReplicaGrouping of a pickle."""
    return ReplicaGrouping.from_assignment(assignment)


if not TYPE_CHECKING:
    __getattr__ = unknown_attribute(__name__, __all__)

__dir__ = names_only(__all__)
