"""Bring a tensor of one graph into a graph that it calls, through all graphs between the two."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from popsr._program.building.transaction import transactional
from popsr._program.context import _context
from popsr._program.graph import Graph
from popsr._program.ir import Ir
from popsr._program.op import Op
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import is_a, read_a, read_items, read_text
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, GraphError
from popsr.ops._sites import require_modifiable

__all__ = [
    "called_graph_paths",
    "connect_call_op",
    "connect_loop_op",
    "connect_tensor_to_ops_on_path",
    "is_subgraph",
    "route_tensor_into_graph",
]

Modified = bool | Iterable[object]


@public
def is_subgraph(parent: Graph, subgraph: Graph) -> bool:
    """True if a graph runs another one, itself or through the graphs that it calls.

    Args:
        parent: the graph that may call.
        subgraph: the graph that may be called; False when it is ``parent``.
    """
    read_a("is_subgraph: parent", parent, Graph)
    read_a("is_subgraph: subgraph", subgraph, Graph)
    return parent is not subgraph and subgraph in _below(parent)


@public
def called_graph_paths(parent_graph: Graph, subgraph: Graph) -> set[tuple[str, ...]]:
    """All ways to get from a graph to another one by calls.

    Args:
        parent_graph: where they begin.
        subgraph: where they end.
    Returns:
        Ids of the graphs on each way, both ends included; empty when there is none. Their number may grow as 2 to the
        power of the depth of the calls.
    """
    read_a("called_graph_paths: parent_graph", parent_graph, Graph)
    read_a("called_graph_paths: subgraph", subgraph, Graph)
    reaching = _between(parent_graph, subgraph)
    paths: set[tuple[str, ...]] = set()
    open_paths: list[tuple[Graph, ...]] = [(parent_graph,)] if subgraph in reaching else []
    while open_paths:
        path = open_paths.pop()
        if path[-1] is subgraph:
            paths.add(tuple(graph.id for graph in path))
            continue
        open_paths += [(*path, graph) for graph in path[-1].called_graphs if graph in reaching]
    return paths


@public
@transactional
def connect_call_op(op: Op, tensor: Tensor, input_tensors: dict[str, Tensor], modified: Modified) -> None:
    """Pass one more tensor to the graph that a call runs.

    The graph gains an input at the end, unless ``input_tensors`` has one for it. All ops that run it get the operand at
    once: calls in the call's graph ``tensor``, calls in other graphs what ``input_tensors`` has for their graph.

    Args:
        op: the call.
        tensor: a tensor of its graph that is made before it.
        input_tensors: by id of the graph, the tensor that stands for ``tensor`` there; gains the new input.
        modified: pass it by reference: True, or regions, of which any has it passed whole.
    Raises:
        ArgumentTypeError: ``op`` is not a call.
        GraphError: an op that runs the graph has no tensor for it, or one that is made later; or the tensor is a
            constant and passed by reference.
    """
    _connect_op("connect_call_op", "call", op, tensor, input_tensors, modified)


@public
@transactional
def connect_loop_op(op: Op, tensor: Tensor, input_tensors: dict[str, Tensor], modified: Modified) -> None:
    """Pass one more tensor to the graph that a loop runs: the same in each iteration, unless by reference.

    Args:
        op: the loop, ``repeat``.
        tensor: a tensor of its graph that is made before it.
        input_tensors: as for ``connect_call_op``.
        modified: as for ``connect_call_op``.
    Raises:
        ArgumentTypeError: ``op`` is not a loop.
        GraphError: as for ``connect_call_op``.
    """
    _connect_op("connect_loop_op", "repeat", op, tensor, input_tensors, modified)


@public
@transactional
def connect_tensor_to_ops_on_path(
    path: tuple[str, ...], from_tensor: Tensor, input_tensors: dict[str, Tensor], modified: Modified
) -> None:
    """Pass a tensor on along a path of calls.

    Args:
        path: ids of graphs as ``called_graph_paths`` has them, the tensor's graph first.
        from_tensor: the tensor.
        input_tensors: by id of the graph, what stands for it there; gains what is missing.
        modified: as for ``connect_call_op``.
    Raises:
        GraphError: the tensor is not of the first graph, or as for ``connect_call_op``.
        UnknownNameError: there is no graph of that id.
    """
    where = "connect_tensor_to_ops_on_path"
    read_a(f"{where}: from_tensor", from_tensor, Tensor)
    read_a(f"{where}: input_tensors", input_tensors, dict)
    path = read_items(where, "path", path, kind="ids of graphs")
    for id_ in path:
        read_text(f"{where}: an id of path", id_)
    ir, by_ref = from_tensor.ir, _is_modified(modified)
    graphs = {graph.id: graph for graph in _all_graphs(ir)}
    if not path or path[0] != from_tensor.scope:
        raise GraphError(
            f"{where}: {shown(from_tensor)} is not in the graph that the path begins with, "
            f"got {shown(path)}, expected {shown(from_tensor.scope)} first"
        )
    unknown = [id_ for id_ in path if id_ not in graphs]
    if unknown:
        raise GraphError(
            f"{where}: unknown graphs {shown(unknown)}, got {shown(path)}, expected ids of graphs"
        )
    input_tensors[path[0]] = from_tensor
    for id_ in path[1:]:
        if id_ not in input_tensors:
            sites = _sites(ir).get(graphs[id_], [])
            _add_input(graphs[id_], sites, from_tensor, input_tensors, by_ref)


@public
@transactional
def route_tensor_into_graph(tensor: Tensor, graph: Graph | None = None, modified: Modified = False) -> Tensor:
    """The tensor of ``graph`` that stands for a tensor of a graph that calls it.

    Each graph on the way gains one input and each op that runs one of them an operand; where all of them pass the
    tensor already, that input is taken. Calls that were made keep their other inputs and outputs.

    Args:
        tensor: the tensor.
        graph: where it is wanted. Default: the current graph.
        modified: pass it by reference, so that writes in place there happen to ``tensor``: True, or regions, of which
            any has it passed whole.
    Returns:
        Tensor of the shape and dtype of ``tensor``; ``tensor`` itself when it is of ``graph``.
    Raises:
        ArgumentTypeError: no Tensor, or no Graph.
        GraphError: no op of the tensor's graph leads to ``graph``; a graph on the way is called from elsewhere; a call
            comes before the op that makes the tensor; a constant is passed by reference; or the tensor is for the host
            only. Nothing is changed then.
    """
    if not is_a(tensor, Tensor):
        raise ArgumentTypeError(f"route_tensor_into_graph: tensor is not a Tensor, got {shown(tensor)}")
    target = _context.graph if graph is None else graph
    if not is_a(target, Graph):
        raise ArgumentTypeError(f"route_tensor_into_graph: graph is not a Graph, got {shown(target)}")
    if tensor in target:
        return tensor
    parent, by_ref = tensor._graph, _is_modified(modified)
    if tensor.ir is not target.ir or not is_subgraph(parent, target):
        raise GraphError(
            f"route_tensor_into_graph: {shown(tensor.id)} is not in {shown(target)} and is not in a "
            "known parent graph "
            f"of it, got {shown(parent)}, expected a graph that calls it"
        )
    way = _in_order(_between(parent, target), parent)
    sites = _sites(tensor.ir)
    _check_way(tensor, way, sites, by_ref)
    input_tensors = {parent.id: tensor}
    for called in way[1:]:
        found = _passed_already(called, sites[called], input_tensors, by_ref)
        if found is None:
            _add_input(called, sites[called], tensor, input_tensors, by_ref)
        else:
            input_tensors[called.id] = found
    return input_tensors[target.id]


def _is_modified(modified: Modified) -> bool:
    if isinstance(modified, bool):
        return modified
    return bool(read_items("route_tensor", "modified", modified, kind="regions"))


def _all_graphs(ir: Ir) -> list[Graph]:
    return [ir._graph(id_) for id_ in range(ir._core.num_graphs)]


def _below(graph: Graph) -> set[Graph]:
    """The graph and all that it runs."""
    found, stack = {graph}, [graph]
    while stack:
        for called in stack.pop().called_graphs:
            if called not in found:
                found.add(called)
                stack.append(called)
    return found


def _between(parent: Graph, subgraph: Graph) -> set[Graph]:
    """Graphs on ways from one to the other, both included; empty when there is none."""
    below = _below(parent)
    callers: dict[Graph, list[Graph]] = {graph: [] for graph in below}
    for graph in below:
        for called in graph.called_graphs:
            callers[called].append(graph)
    found = {subgraph} & below
    stack = list(found)
    while stack:
        for caller in callers[stack.pop()]:
            if caller not in found:
                found.add(caller)
                stack.append(caller)
    return found


def _in_order(graphs: set[Graph], first: Graph) -> list[Graph]:
    """Callers before what they call; ``first`` calls all others."""
    waiting = dict.fromkeys(graphs, 0)
    for graph in graphs:
        for called in graph.called_graphs:
            if called in waiting:
                waiting[called] += 1
    order, ready = [], [first]
    while ready:
        graph = ready.pop()
        order.append(graph)
        for called in graph.called_graphs:
            if called in waiting:
                waiting[called] -= 1
                if waiting[called] == 0:
                    ready.append(called)
    return order


def _sites(ir: Ir) -> dict[Graph, list[Op]]:
    """The ops that run each graph."""
    sites: dict[Graph, list[Op]] = {}
    for op in (Op(ir, id_) for id_ in ir._core.ops_with_graphs()):
        for called in dict.fromkeys(op.called_graphs):
            sites.setdefault(called, []).append(op)
    return sites


def _graph_of(op: Op) -> Graph:
    return op._ir._graph(op._ir._core.op_graph(op.id))


def _check_way(tensor: Tensor, way: list[Graph], sites: Mapping[Graph, list[Op]], by_ref: bool) -> None:
    where, core = "route_tensor_into_graph", tensor.ir._core
    if by_ref:
        require_modifiable(where, tensor)
    if core.home(tensor._id) is not None:
        raise GraphError(f"{where}: {shown(tensor.id)} is for the host only, expected what is loaded from it")
    producer = core.tensor(tensor._id).producer
    made, location = (
        (-1, "") if producer is None else (core.op_position(producer), core.location_of(producer))
    )
    for called in way[1:]:
        for op in sites[called]:
            caller = _graph_of(op)
            if caller not in way:
                raise GraphError(
                    f"{where}: {shown(called)} is also called from {shown(caller)} at {op.location}, where "
                    f"{shown(tensor.id)} is not "
                    "known, expected calls below its graph only"
                )
            if caller is way[0] and core.op_position(op.id) <= made:
                raise GraphError(
                    f"{where}: {shown(tensor.id)} is made after {op.kind} at {op.location}, got {location}, "
                    "expected a tensor from before"
                )


def _passed_already(
    graph: Graph, sites: list[Op], tensors: Mapping[str, Tensor], by_ref: bool
) -> Tensor | None:
    """The input that each op that runs the graph passes the tensor as."""
    candidates = [t for t in graph.inputs if graph.ir._core.tensor(t._id).by_ref == by_ref]
    for op in sites:
        passed = tensors[_graph_of(op).id]
        candidates = [t for t in candidates if all(each is passed for each in _operands(op, graph, t))]
    return candidates[0] if candidates else None


def _operands(op: Op, graph: Graph, graph_input: Tensor) -> list[Tensor | None]:
    """The operand that an op passes as an input of a graph that it runs; None for a value that a loop carries."""
    at = graph.inputs.index(graph_input)
    if op.kind == "repeat" and at < len(op.outputs):
        return [None]
    if op.kind != "conditional":
        return [op.inputs[at]]
    branches = op.called_graphs
    begins = (1, 1 + len(branches[0].inputs))
    return [op.inputs[begin + at] for begin, branch in zip(begins, branches, strict=True) if branch is graph]


def _add_input(
    graph: Graph, sites: Iterable[Op], tensor: Tensor, tensors: dict[str, Tensor], by_ref: bool
) -> None:
    """Let each op that runs the graph pass what stands for the tensor where the op is."""
    passed = [(op, tensors.get(_graph_of(op).id)) for op in sites]
    operands = [(op.id, t._id) for op, t in passed if t is not None]
    ir = graph.ir
    id_ = ir._core.add_called_input(
        graph._id,
        tensor.name,
        tensor.dtype.name,
        list(tensor.shape),
        list(tensor.meta_shape),
        by_ref,
        operands,
    )
    tensors[graph.id] = ir._tensor(id_)


def _connect_op(
    where: str, kind: str, op: Op, tensor: Tensor, input_tensors: dict[str, Tensor], modified: Modified
) -> None:
    read_a(f"{where}: tensor", tensor, Tensor)
    read_a(f"{where}: input_tensors", input_tensors, dict)
    if not is_a(op, Op) or op.kind != kind:
        raise ArgumentTypeError(f"{where}: not a {kind} op, got {shown(op)}")
    if tensor not in _graph_of(op):
        raise GraphError(
            f"{where}: {shown(tensor.id)} is not in the graph of {shown(op)}, got {shown(tensor._graph)}, "
            "expected a tensor of the same graph"
        )
    (called,) = op.called_graphs
    if called.id not in input_tensors:
        known = {**input_tensors, tensor.scope: tensor}
        _add_input(called, _sites(op._ir)[called], tensor, known, _is_modified(modified))
        input_tensors[called.id] = known[called.id]
