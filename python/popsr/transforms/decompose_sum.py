"""Sums of many tensors as additions of two."""

from __future__ import annotations

from popsr._program.graph import Graph
from popsr._support.host.arguments import is_a
from popsr._support.text.entry_points import public_call
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError

__all__ = ["decompose_sum"]


@public_call
def decompose_sum(graph: Graph) -> Graph:
    """Split each op that adds more than two tensors into additions of two.

    No op adds more than two tensors: programs add two at a time, and so does ``autodiff`` where several gradients
    meet. So the graph is already as PopXL's transform would leave it.

    Args:
        graph: the graph.
    Returns:
        ``graph``.
    Raises:
        TypeError: it is not a Graph.
    """
    if not is_a(graph, Graph):
        raise ArgumentTypeError(f"decompose_sum: graph is not a Graph, got {shown(graph)}")
    return graph
