"""Ops at the end of a graph become the body of a loop."""

from __future__ import annotations

from popsr._program.building.location import current_location
from popsr._program.building.transaction import transactional
from popsr._program.context import _context
from popsr._program.graph import Graph
from popsr._program.op import Op

__all__ = ["outline"]


@transactional
def outline(graph: Graph, first: int, count: int, name: str, *, carries: bool = False) -> tuple[Graph, Op]:
    """Move the ops of a graph from position ``first`` on into a new graph that a loop in their place runs.

    Ops and tensors stay the objects that they are, but are of the new graph.

    Args:
        graph: the graph.
        first: position of the first op that moves, less than the number of ops.
        count: how often they run, at least once.
        name: of the new graph.
        carries: pass each output of the graph to the input of the same number in the next iteration.
    Returns:
        The new graph, and the loop.
    Raises:
        GraphError: an output of the graph is made by an op that moves and is not carried, or there are fewer inputs
            than outputs, or calls are nested too deeply.
        ShapeError: an output cannot be carried.
        DTypeError: an output cannot be carried.
    """
    ir = graph.ir
    place = _context._ipu_id or 0, _context._io_tile_set
    body, op, moved = ir._core.outline(graph._id, first, count, name, carries, current_location(ir), *place)
    for id_ in moved:
        tensor = ir._tensor_cache.get(id_)
        if tensor is not None:
            tensor._graph_id, tensor._name = body, ir._core.tensor(id_).name  # see Ir._rolled_back
    made = Op(ir, op)
    graph._op_hooks.run(made)
    _context._op_hooks.run(made)
    return ir._graph(body), made
