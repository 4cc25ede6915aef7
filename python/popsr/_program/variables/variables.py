"""Making variables whose values live on the device."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from popsr import dtypes, replicas
from popsr._program.building.location import current_location
from popsr._program.building.transaction import transactional
from popsr._program.state import _context
from popsr._program.tensor import Variable
from popsr._support.host.arguments import read_choice, read_name
from popsr._support.host.group_data import group_data, is_mapped
from popsr._support.text.entry_points import public_call
from popsr._support.text.shown import shown
from popsr.errors import (
    ArgumentTypeError,
    AttributeValueError,
    GraphError,
    ReplicaError,
    UnsupportedError,
)
from popsr.replicas import ReplicaGrouping, VariableSettings
from popsr.utils import HostScalarTensor

__all__ = [
    "Groups",
    "RetrievalMode",
    "VariablePlan",
    "plan_variable",
    "read_group",
    "read_groups",
    "variable",
]

RetrievalMode = Literal["one_per_group", "all_replicas"]


@dataclass(frozen=True, slots=True)
class Groups:
    """Replicas that share a value, and which of them the host reads."""

    grouping: ReplicaGrouping
    all_replicas: bool


@dataclass(frozen=True, slots=True)
class VariablePlan:
    """A variable that can be made: everything about it is checked."""

    ir: Any
    name: str
    data: np.ndarray[Any, Any]
    groups: Groups

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape on one replica."""
        shape: tuple[int, ...] = self.data.shape
        return shape if self.groups.grouping.num_groups == 1 else shape[1:]

    @property
    def dtype(self) -> dtypes.dtype:
        """Element type."""
        return dtypes.dtype.as_dtype(self.data.dtype)

    def make(self) -> Variable:
        """The variable, on the device."""
        id_ = self.ir._core.add_variable(
            _context.scoped(self.name),
            self.dtype.name,
            list(self.shape),
            self.data,
            self.groups.grouping,
            self.groups.all_replicas,
            is_mapped(self.data),
            current_location(self.ir),
        )
        result = self.ir._tensor(id_)
        assert isinstance(result, Variable)
        if is_mapped(self.data):
            self.ir._mapped[id_] = self.data
        return result


def plan_variable(
    where: str,
    data: HostScalarTensor,
    dtype: dtypes.dtype | None,
    name: str | None,
    downcast: bool,
    groups: Groups,
    log2_scale: int | None,
    nan_on_overflow: bool | None,
) -> VariablePlan:
    """Check everything about a variable; ``where`` is the caller, for messages."""
    name = read_name(where, name)
    array = group_data(
        f"{where} {name!r}",
        data,
        dtype,
        downcast,
        log2_scale,
        nan_on_overflow,
        num_groups=groups.grouping.num_groups,
    )
    if is_mapped(array) and groups.all_replicas and groups.grouping.group_size > 1:
        raise AttributeValueError(
            "When passing a memory-mapped NumPy array, what is read back must fit into it, got retrieval_mode "
            f"'all_replicas' for {shown(name)} with groups of {groups.grouping.group_size}, expected 'one_per_group'"
        )
    return VariablePlan(_main_graph_ir(where), name, array, groups)


def _main_graph_ir(where: str) -> Any:
    graph = _context.graph_of(where)
    if graph._id != 0:
        name = graph._ir._core.graph_name(graph._id)
        raise GraphError(f"{where}: made in graph {shown(name)}, expected the main graph")
    return graph._ir


def read_group(where: str, group: Any, name: str = "group") -> ReplicaGrouping:
    """Groups of all replicas of the current program; None is one group.

    Raises:
        ArgumentTypeError: it is not a grouping.
        ReplicaError: it is of another number of replicas.
    """
    ir = _context.graph_of(where)._ir
    if group is None:
        return ir.replica_grouping()
    if not isinstance(group, ReplicaGrouping):
        raise ArgumentTypeError(f"{where}: {name} is not a ReplicaGrouping, got {shown(group)}")
    if group.num_replicas != ir.replication_factor:
        raise ReplicaError(
            f"{where}: grouping of another replica count, got {group.num_replicas}, expected {ir.replication_factor}"
        )
    return group


def read_groups(
    where: str, replica_grouping: ReplicaGrouping | None, retrieval_mode: RetrievalMode | None
) -> Groups:
    """The groups that PopXL's two arguments describe."""
    _main_graph_ir(where)
    read_choice(where, "retrieval_mode", retrieval_mode, (None, "one_per_group", "all_replicas"))
    grouping = read_group(where, replica_grouping, "replica_grouping")
    return Groups(grouping, retrieval_mode == "all_replicas")


def _read_settings(where: str, settings: VariableSettings, others: Iterable[object]) -> Groups:
    ir = _main_graph_ir(where)
    if not isinstance(settings, replicas.VariableSettings):
        raise ArgumentTypeError(
            f"{where}: variable_settings is not a VariableSettings, got {shown(settings)}"
        )
    if any(other is not None for other in others):
        raise AttributeValueError(
            f"{where}: groups are given twice, got variable_settings beside replica_grouping or retrieval_mode, "
            "expected one of them"
        )
    mode = settings.retrieval_mode
    if mode is replicas.VariableRetrievalMode.AllReduceReplicas:
        raise UnsupportedError(
            f"{where}: retrieval mode AllReduceReplicas is not supported, expected OnePerGroup or AllReplicas"
        )
    grouping = settings.replica_grouping(ir.replication_factor)
    return Groups(grouping, mode is replicas.VariableRetrievalMode.AllReplicas)


@public_call
@transactional
def variable(
    data: HostScalarTensor,
    dtype: dtypes.dtype | None = None,
    name: str | None = None,
    downcast: bool = True,
    replica_grouping: ReplicaGrouping | None = None,
    retrieval_mode: RetrievalMode | None = None,
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
    *,
    variable_settings: VariableSettings | None = None,
) -> Variable:
    """A variable of the main graph.

    Args:
        data: initial value: ``shape``, or ``(num_groups, *shape)`` when there are several groups; or an iterator over
            the groups' values, each of ``shape``. A memory-mapped array is shared: ``weights_to_host`` writes to it.
        dtype: element type. Default: the data's.
        name: its name. Default: "t".
        downcast: without ``dtype``, narrow 64-bit types to 32 bits.
        replica_grouping: replicas of a group start with the same value. Default: one group of all.
        retrieval_mode: what the host reads: the first replica of each group (default), or all replicas.
        log2_scale: of floats that become float8: they are multiplied by ``2**log2_scale``. Default: 0.
        nan_on_overflow: of floats that become float8: what is too large becomes NaN, or infinite where the type has
            infinity (default); else the largest float8.
        variable_settings: PopART's form of ``replica_grouping`` and ``retrieval_mode``.
    Raises:
        GraphError: another graph than the main graph is current.
        ShapeError: the leading dimension is not the number of groups, or the rows of an iterator are not so many or
            of different shapes.
        ReplicaError: groups that do not tile the replicas.
        ValueError: memory-mapped data that would have to be converted.
        TypeError: ``data`` is not numeric, or not floating where ``dtype`` is float8.
        RuntimeError: ``log2_scale`` or ``nan_on_overflow`` for another type than float8.
        UnsupportedError: settings with AllReduceReplicas.
    """
    if variable_settings is None:
        groups = read_groups("variable", replica_grouping, retrieval_mode)
    else:
        groups = _read_settings("variable", variable_settings, (replica_grouping, retrieval_mode))
    return plan_variable("variable", data, dtype, name, downcast, groups, log2_scale, nan_on_overflow).make()
