"""Summaries of programs, sessions, tensors, groups, partitions and trees for notebooks, `print` and treescope."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

from popsr._program.graph import Graph
from popsr._program.ir import Ir
from popsr._program.tensor import Tensor, Variable
from popsr._support.text.replica_sets import groups_text, set_text
from popsr._support.text.summary import Groups, Summary
from popsr.replicas import Partition, ReplicaGrouping, VariableSettings

__all__ = ["html_of", "summary_of", "text_of", "treescope_of"]

_TENSOR = ("name", "dtype", "shape", "groups", "made at")


@functools.singledispatch
def summary_of(value: Any) -> Summary:
    """The summary of an object: of classes in rooms above, their own."""
    found: Summary = value._summary()
    return found


def text_of(value: Any) -> str:
    """``str(value)``."""
    return summary_of(value).text()


def html_of(value: Any) -> str:
    """``value._repr_html_()``."""
    return summary_of(value).html()


def treescope_of(value: Any, path: str | None, subtree_renderer: Any) -> Any:
    """``value.__treescope_repr__(path, subtree_renderer)``."""
    return summary_of(value).treescope(value, path, subtree_renderer)


def groups_of(tensor: Tensor) -> Groups | str:
    """The groups of a variable's values; of other tensors nothing."""
    if not isinstance(tensor, Variable):
        return ""
    groups = tensor.replica_grouping.partition
    return Groups(groups_text(groups), groups)


def made_at(tensor: Tensor) -> str:
    """``file:line`` of the op that makes a tensor, or of the call that made a variable."""
    core = tensor.ir._core
    if isinstance(tensor, Variable):
        return core.location_of_variable(tensor._id)
    producer = core.tensor(tensor._id).producer
    return "" if producer is None else core.location_of(producer)


def _tensor_row(tensor: Tensor) -> tuple[object, ...]:
    return (tensor.name, tensor.dtype.name, str(tensor.shape), groups_of(tensor), made_at(tensor))


@summary_of.register
def _(ir: Ir) -> Summary:
    variables = ir.main_graph.variables
    return Summary(repr(ir), _TENSOR, map(_tensor_row, variables), len(variables))


@summary_of.register
def _(graph: Graph) -> Summary:
    ops = graph.ops
    rows = ((op.name, op.kind, op.location) for op in ops)
    title = f"{graph!r}: graph.html() shows all of it"
    return Summary(title, ("output", "op", "made at"), rows, len(ops))


@summary_of.register
def _(tensor: Tensor) -> Summary:
    return Summary(repr(tensor), _TENSOR, [_tensor_row(tensor)], 1)


@summary_of.register
def _(partition: Partition) -> Summary:
    return Summary(
        repr(partition),
        ("block", "size", "replicas"),
        _members(partition.blocks),
        partition.num_blocks,
        partition,
    )


@summary_of.register
def _(grouping: ReplicaGrouping) -> Summary:
    return Summary(
        repr(grouping),
        ("group", "size", "replicas"),
        _members(grouping.groups),
        grouping.num_groups,
        grouping.partition,
    )


@summary_of.register
def _(settings: VariableSettings) -> Summary:
    return Summary(repr(settings))


def _members(groups: Iterable[tuple[int, ...]]) -> Iterator[tuple[object, ...]]:
    for i, members in enumerate(groups):
        yield i, len(members), set_text(members)
