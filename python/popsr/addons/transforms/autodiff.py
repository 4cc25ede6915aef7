"""Gradient graphs of graphs with named arguments, and such graphs that accumulate what they return."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np

from popsr import dtypes, ops
from popsr._program.building.transaction import transactional
from popsr._program.context import in_sequence
from popsr._program.graph import Graph
from popsr._program.tensor import Tensor, constant
from popsr._support.host.arguments import read_a, read_items
from popsr._support.records import Connection, GradGraph
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.addons.dot_tree import sanitise
from popsr.addons.graph import (
    CalledGraphsGradInfoLike,
    GraphLike,
    GraphWithNamedArgs,
    differentiate,
)
from popsr.addons.named_replica_grouping import NamedReplicaGrouping, group_of
from popsr.addons.named_tensors import NamedTensors
from popsr.addons.variable_factory import NamedVariableFactories, VariableFactory, add_variable_input
from popsr.errors import ArgumentTypeError, AttributeValueError, GraphError
from popsr.transforms import GradGraphInfo

__all__ = ["autodiff", "autodiff_with_accumulation", "remap_grad_info"]


@public
@transactional
def autodiff(
    graph: GraphLike,
    grads_provided: Iterable[Tensor] | None = None,
    grads_required: Iterable[Tensor] | None = None,
    called_graphs_grad_info: CalledGraphsGradInfoLike | None = None,
) -> GraphWithNamedArgs:
    """The gradient graph of a graph; see ``popsr.transforms.autodiff``.

    Values of the forward graph that it needs become further outputs of that, so differentiate before you call.

    Args:
        graph: the graph.
        grads_provided: tensors whose gradients are given. Default: all outputs.
        grads_required: tensors whose gradients are wanted. Default: all floating inputs.
        called_graphs_grad_info: gradient graphs of graphs that it calls; they go before those that it knows.
    Returns:
        The gradient graph, without named arguments. Its inputs are the given gradients, then values of the forward
        graph: ``grad_graph_info.inputs_dict``; its outputs are in the order of ``grads_required``.
    Raises:
        ValueError: a gradient does not exist, or tensors are not of the graph.
    """
    return differentiate(graph, grads_provided, grads_required, called_graphs_grad_info)


@public
@transactional
def autodiff_with_accumulation(
    graph: GraphWithNamedArgs,
    tensors_to_accumulate_grads: Iterable[Tensor],
    grads_provided: Iterable[Tensor] | None = None,
    grads_required: Iterable[Tensor] | None = None,
    called_graphs_grad_info: CalledGraphsGradInfoLike | None = None,
    replica_groupings: NamedReplicaGrouping | None = None,
) -> tuple[NamedVariableFactories, GraphWithNamedArgs]:
    """A gradient graph that keeps the running mean of gradients over its calls, in the place of returning them.

    With counter c, each accumulator becomes ``accum * c / (c + 1) + gradient / (c + 1)``, and then c one more. Set the
    counter to zero after each update of the weights; what the accumulators hold then does not matter.

    Args:
        graph: the forward graph.
        tensors_to_accumulate_grads: tensors whose gradients are accumulated.
        grads_provided: tensors whose gradients are given. Default: all outputs.
        grads_required: tensors whose gradients are returned as well. Default: none.
        called_graphs_grad_info: gradient graphs of graphs that it calls.
        replica_groupings: groups of replicas with the same accumulator, by the tensors' keys in ``graph.args``.
            Default: one group of all, also for keys that are not there.
    Returns:
        Factories of the accumulators, and the gradient graph with inputs by reference for them: ``accum.<key>`` of each
        tensor's shape and dtype, where tensors that are not named arguments have their names as keys; and
        ``mean_accum_counter``, a float32 scalar. All start at zero.
    Raises:
        ValueError: as for ``autodiff``; a tensor has no gradient to accumulate; two have one key.
    """
    if not isinstance(graph, GraphWithNamedArgs):
        raise ArgumentTypeError(f"autodiff_with_accumulation: not a GraphWithNamedArgs, got {shown(graph)}")
    accumulated = _tensors("tensors_to_accumulate_grads", tensors_to_accumulate_grads)
    keys = _keys(graph, accumulated)
    wanted = [] if grads_required is None else _tensors("grads_required", grads_required)
    required = dict.fromkeys([*wanted, *accumulated])
    gradients = autodiff(graph, grads_provided, required, called_graphs_grad_info)
    expected = (c.fwd_tensor for c in gradients.grad_graph_info.expected_outputs)
    outputs = dict(zip(expected, gradients.graph.outputs, strict=True))
    factories: dict[str, VariableFactory] = {}
    args: dict[str, Tensor] = {}
    with gradients.graph, in_sequence(True):
        counter, factories["mean_accum_counter"] = add_variable_input(
            "mean_accum_counter", partial(np.zeros, (), np.float32), dtypes.float32, by_ref=True
        )
        args["mean_accum_counter"] = counter
        for tensor in accumulated:
            key = f"accum.{keys[tensor]}"
            args[key], factories[key] = _accumulator(tensor, keys[tensor], replica_groupings)
            ops.var_updates.accumulate_mean_(args[key], outputs[tensor], counter)
        ops.add_(counter, constant(1, dtypes.float32))
    info = _without_outputs(gradients.grad_graph_info, set(accumulated))
    named = GraphWithNamedArgs.from_grad_graph(info, NamedTensors.from_dict(args))
    return NamedVariableFactories.from_dict(factories), named


def _tensors(name: str, tensors: Iterable[Tensor]) -> list[Tensor]:
    """Each once."""
    where = "autodiff_with_accumulation"
    items = read_items(where, name, tensors, kind="tensors")
    return list(dict.fromkeys(read_a(f"{where}: an item of {name}", t, Tensor) for t in items))


def _keys(graph: GraphWithNamedArgs, tensors: list[Tensor]) -> dict[Tensor, str]:
    """Keys of accumulators; a name may be the key of another tensor, or above it."""
    named = {tensor: key for key, tensor in graph.args.to_dict().items()}
    keys, taken, above = {}, set[str](), set[str]()
    for tensor in tensors:
        key = keys[tensor] = named.get(tensor) or sanitise(tensor.name)
        subtrees = set(_above(key))
        if key in taken or key in above or subtrees & taken:
            raise AttributeValueError(
                f"autodiff_with_accumulation: two tensors have one key, got {shown(key)} for {shown(tensor)}, "
                "expected a name "
                "of its own for each"
            )
        taken.add(key)
        above |= subtrees
    return keys


def _above(key: str) -> Iterator[str]:
    """The dotted keys that a key lies below."""
    return itertools.accumulate(key.split(".")[:-1], "{}.{}".format)


def _accumulator(
    tensor: Tensor, key: str, replica_groupings: NamedReplicaGrouping | None
) -> tuple[Tensor, VariableFactory]:
    """Of a shard each member of the group accumulates its part: the variable has the shape of the part."""
    grouping = group_of(replica_groupings, key)
    zeros = partial(np.zeros, tensor.shape, tensor.dtype.as_ml_dtypes())
    return add_variable_input(f"accum.{key}", zeros, tensor.dtype, by_ref=True, replica_grouping=grouping)


def _without_outputs(info: GradGraphInfo, accumulated: set[Tensor]) -> GradGraphInfo:
    """Take back the gradients that are accumulated."""
    graph, expected = info.graph, info.expected_outputs
    for i in reversed(range(len(expected))):
        if expected[i].fwd_tensor in accumulated:
            graph.ir._core.remove_output(graph._id, i)
    record = info._to_record()
    removed = {tensor._id for tensor in accumulated}
    left = [output for output in record.outputs if output.tensor not in removed]
    return GradGraphInfo._of(graph.ir, record._replace(outputs=left))


@public
def remap_grad_info(grad_info: GradGraphInfo, forward_graph: Graph, backward_graph: Graph) -> GradGraphInfo:
    """The same connections between two other graphs, whose inputs and outputs are in the same places.

    Args:
        grad_info: the connections.
        forward_graph: takes the place of its forward graph.
        backward_graph: takes the place of its gradient graph.
    Raises:
        ValueError: the other graphs have fewer inputs or outputs, or a connection is to neither.
    """
    read_a("remap_grad_info: grad_info", grad_info, GradGraphInfo)
    read_a("remap_grad_info: forward_graph", forward_graph, Graph)
    read_a("remap_grad_info: backward_graph", backward_graph, Graph)
    before, after = grad_info.forward_graph, forward_graph
    places = [
        *zip(before.inputs, after.inputs, strict=False),
        *zip(before.outputs, after.outputs, strict=False),
    ]
    other = {ours._id: theirs._id for ours, theirs in reversed(places)}

    def moved(connections: Iterable[Connection]) -> list[Connection]:
        missing = [id_ for _, id_ in connections if id_ not in other]
        if missing:
            raise GraphError(
                f"remap_grad_info: no such input or output, got {shown(forward_graph)}, expected a place for "
                f"{shown(grad_info.graph.ir._tensor(missing[0]))}"
            )
        return [Connection(is_gradient, other[id_]) for is_gradient, id_ in connections]

    for what, found, expected in (
        ("inputs", backward_graph.inputs, grad_info.expected_inputs),
        ("outputs", backward_graph.outputs, grad_info.expected_outputs),
    ):
        if len(found) < len(expected):
            raise GraphError(
                f"remap_grad_info: too few {what}, got {len(found)} of {shown(backward_graph)}, expected "
                f"{len(expected)}"
            )
    record = grad_info._to_record()
    return GradGraphInfo._of(
        forward_graph.ir,
        GradGraph(forward_graph._id, backward_graph._id, moved(record.inputs), moved(record.outputs)),
    )
