"""Run all ops of a graph several times."""

from __future__ import annotations

from popsr._program.building.transaction import transactional
from popsr._program.graph import Graph
from popsr._program.outline import outline
from popsr._support.host.arguments import is_a, read_int
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError

__all__ = ["repeat_graph"]


@public
@transactional
def repeat_graph(graph: Graph, repeat_count: int) -> Graph:
    """Move all ops of a graph into a new graph that a loop in their place runs, in the order in which they are.

    What the ops take from outside, as variables of the main graph, stays where it is; what they write there in place is
    kept from one iteration to the next. Outputs of the graph are carried as by ``ops.repeat``: output i is input i of
    the next iteration, and what the graph returns is the last one's. Tensors that the ops make are of the new
    graph from now on.

    Args:
        graph: the graph, which may be the main graph, and may be called already.
        repeat_count: how often the ops run; with less than two nothing is changed.
    Returns:
        The new graph; ``graph`` itself when nothing is changed, also when it has no ops.
    Raises:
        ArgumentTypeError: ``graph`` is not a Graph.
        AttributeValueError: ``repeat_count`` is not an int.
        GraphError: the graph has fewer inputs than outputs.
        ShapeError: an output is of another shape than the input that it is carried to.
        DTypeError: an output is of another dtype than the input that it is carried to.
    """
    if not is_a(graph, Graph):
        raise ArgumentTypeError(f"repeat_graph: graph is not a Graph, got {shown(graph)}")
    count = read_int("repeat_graph: repeat_count", repeat_count, -(2**63))
    if count <= 1 or not graph.ir._core.graph_ops(graph._id):
        return graph
    return outline(graph, 0, count, "repeat", carries=bool(graph.outputs))[0]
