"""Gradient graphs that compute the forward graph again instead of taking its values."""

from __future__ import annotations

from popsr import ops
from popsr._program.building.transaction import transactional
from popsr._program.context import gir, in_sequence
from popsr._program.create_graph import graph_input, graph_output
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_a
from popsr._support.records import Connection
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.addons.graph import GraphWithNamedArgs
from popsr.addons.named_tensors import NamedTensors
from popsr.addons.utils import suffix_graph_name
from popsr.errors import ArgumentTypeError
from popsr.transforms import ExpectedConnectionType, GradGraphInfo

__all__ = ["add_recompute_inputs", "recompute_graph"]

_FWD = ExpectedConnectionType.Fwd


@public
@transactional
def add_recompute_inputs(
    grad_info: GradGraphInfo,
) -> tuple[list[tuple[bool, Tensor]], dict[Tensor, Tensor], dict[Tensor, Tensor]]:
    """Make the inputs of a recomputing gradient graph in the current graph.

    They are the given gradients and those inputs of the forward graph that the gradient graph takes, in its order; then
    the other inputs of the forward graph, by name.

    Args:
        grad_info: of the gradient graph that is to recompute.
    Returns:
        What each new input is: whether a gradient, and of which forward tensor; inputs of the forward graph to new
        inputs; inputs of the gradient graph to new inputs.
    """
    read_a("add_recompute_inputs: grad_info", grad_info, GradGraphInfo)
    inputs = set(grad_info.forward_graph.inputs)
    connections: list[tuple[bool, Tensor]] = []
    of_forward: dict[Tensor, Tensor] = {}
    of_gradient: dict[Tensor, Tensor] = {}
    for theirs, each in zip(grad_info.graph.inputs, grad_info.expected_inputs, strict=False):
        tensor, is_value = each.fwd_tensor, each.connection_type is _FWD
        if is_value and tensor not in inputs:
            continue
        of_gradient[theirs] = _input(theirs)
        connections.append((not is_value, tensor))
        if is_value:
            of_forward[tensor] = of_gradient[theirs]
    for tensor in sorted(inputs - of_forward.keys(), key=lambda t: t.name):
        of_forward[tensor] = _input(tensor)
        connections.append((False, tensor))
    return connections, of_forward, of_gradient


@public
@transactional
def recompute_graph(grad_graph: GraphWithNamedArgs) -> GraphWithNamedArgs:
    """A gradient graph that calls the forward graph again, and then the given gradient graph: with the same bits.

    Its inputs are the inputs of ``add_recompute_inputs``, then further inputs of the gradient graph by name, such as
    accumulators. Values that the forward graph computes are not inputs any more, so they need not be kept.

    Args:
        grad_graph: the gradient graph.
    Returns:
        The new graph, with the same outputs and named arguments.
    Raises:
        AttributeError: it is not a gradient graph.
    """
    if not isinstance(grad_graph, GraphWithNamedArgs):
        raise ArgumentTypeError(f"recompute_graph: not a GraphWithNamedArgs, got {shown(grad_graph)}")
    info = grad_graph.grad_graph_info
    expected = len(info.expected_inputs)
    with gir().create_empty_graph(suffix_graph_name(info.graph.name, "recomp")) as graph, in_sequence():
        connections, of_forward, of_gradient = add_recompute_inputs(info)
        for extra in sorted(info.graph.inputs[expected:], key=lambda t: t.name):
            of_gradient[extra] = _input(extra, by_ref=graph.ir._core.tensor(extra._id).by_ref)
        forward = ops.call_with_info(info.forward_graph, inputs_dict=of_forward)
        values = {
            theirs: ours for theirs, ours in info.inputs_dict(forward).items() if theirs not in of_gradient
        }
        for gradient in ops.call(info.graph, inputs_dict={**values, **of_gradient}):
            graph_output(gradient)
    inputs = [Connection(is_gradient, tensor._id) for is_gradient, tensor in connections]
    record = info._to_record()._replace(gradient=graph._id, inputs=inputs)
    recomputed = GradGraphInfo._of(graph.ir, record)
    args = NamedTensors.from_dict({key: of_gradient[t] for key, t in grad_graph.args.to_dict().items()})
    return GraphWithNamedArgs.from_grad_graph(recomputed, args)


def _input(like: Tensor, by_ref: bool = False) -> Tensor:
    return graph_input(like.shape, like.dtype, like.name, by_ref, like.meta_shape)
