"""Gradient graphs that are written by hand, as ``build_grad`` of a module."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

from popsr._program.context import gir
from popsr._program.create_graph import graph_input, graph_output
from popsr._program.graph import Graph
from popsr._program.ir import Ir
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_a, read_items, read_mapping
from popsr._support.records import Connection, GradGraph
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.addons.graph import GraphModule, GraphWithNamedArgs
from popsr.addons.module_gradients import Aux, VarGrad, check_shape
from popsr.addons.utils import duplicate_items, suffix_graph_name
from popsr.errors import (
    ArgumentTypeError,
    AttributeValueError,
    GraphError,
)
from popsr.transforms import GradGraphInfo

__all__ = ["create", "create_grad_graph_info"]


@public
def create_grad_graph_info(
    ir: Ir,
    fwd_graph: Graph,
    grad_graph: Graph,
    grad_input_to_fwd_output: OrderedDict[Tensor, Tensor],
    grad_output_to_fwd_input: OrderedDict[Tensor, Tensor],
    fwd_tensors: set[Tensor],
) -> GradGraphInfo:
    """``GradGraphInfo`` of a gradient graph that was made by hand, as ``popsr.transforms.autodiff`` returns.

    Args:
        ir: the Ir.
        fwd_graph: the forward graph.
        grad_graph: the gradient graph.
        grad_input_to_fwd_output: inputs of the gradient graph, in order, to tensors of the forward graph: inputs or
            outputs that callers see.
        grad_output_to_fwd_input: outputs of the gradient graph, in order, to what they are the gradients of.
        fwd_tensors: tensors of the forward graph whose values the gradient graph takes, not their gradients.
    """
    where = "create_grad_graph_info"
    read_a(f"{where}: ir", ir, Ir)
    read_a(f"{where}: fwd_graph", fwd_graph, Graph)
    read_a(f"{where}: grad_graph", grad_graph, Graph)
    for name, given in (
        ("grad_input_to_fwd_output", grad_input_to_fwd_output),
        ("grad_output_to_fwd_input", grad_output_to_fwd_input),
    ):
        for tensor in read_mapping(where, name, given).values():
            read_a(f"{where}: a value of {name}", tensor, Tensor)
    values = {id(t) for t in read_items(where, "fwd_tensors", fwd_tensors, kind="tensors")}
    inputs = [(id(tensor) not in values, tensor) for tensor in grad_input_to_fwd_output.values()]
    return _grad_graph_info(ir, fwd_graph, grad_graph, inputs, grad_output_to_fwd_input.values())


def _grad_graph_info(
    ir: Ir,
    fwd_graph: Graph,
    grad_graph: Graph,
    inputs: Iterable[tuple[bool, Tensor]],
    outputs: Iterable[Tensor],
) -> GradGraphInfo:
    """Inputs are gradients (True) or values of forward tensors; outputs gradients."""
    return GradGraphInfo._of(
        ir,
        GradGraph(
            fwd_graph._id,
            grad_graph._id,
            [Connection(is_gradient, tensor._id) for is_gradient, tensor in inputs],
            [Connection(True, tensor._id) for tensor in outputs],
        ),
    )


@public
def create(
    module: GraphModule,
    fwd_graph: GraphWithNamedArgs,
    grads_provided: Iterable[Tensor] | None,
    grads_required: Iterable[Tensor] | None,
) -> GraphWithNamedArgs:
    """See ``Module.create_grad_graph``."""
    read_a("create_grad_graph: fwd_graph", fwd_graph, GraphWithNamedArgs)
    forward = fwd_graph.graph
    kept = fwd_graph.aux or Aux()
    of_build = [t for t in forward.outputs if t not in kept._exposed]
    provided = _members(
        "grads_provided", of_build if grads_provided is None else grads_provided, forward.outputs
    )
    required = _members("grads_required", grads_required, forward.inputs)
    _check_parameters(module, len(provided))
    variables = {tensor: key for key, tensor in fwd_graph.args.to_dict().items()}
    state, graph = module._own_state, gir().create_empty_graph(suffix_graph_name(forward.name, "grad"))
    state.aux = kept._for_grad()
    state.var_grad = VarGrad(fwd_graph.args.to_dict())
    with graph:
        given = [
            graph_input(t.shape, t.dtype, f"Gradient___{_short(t)}", False, t.meta_shape) for t in provided
        ]
        returned = list(_tensors(module.build_grad(*given)))
        plain = [t for t in required if t not in variables]
        _check_returned(returned, plain)
        missing = [
            variables[t] for t in required if t in variables and variables[t] not in state.var_grad._gradients
        ]
        if missing:
            raise GraphError(
                f"build_grad: missing variable gradients, got none for {missing} in var_grad, "
                "expected a gradient of each variable"
            )
        of_variables = [t for t in required if t in variables]
        outputs = [*returned, *(state.var_grad[variables[t]] for t in of_variables)]
        for tensor in outputs:
            graph_output(tensor)
    taken = state.aux._inputs
    exposed = _expose(forward, taken)
    inputs = [*((True, t) for t in provided), *((False, t) for t in taken)]
    info = _grad_graph_info(gir(), forward, graph, inputs, [*plain, *of_variables])
    made = GraphWithNamedArgs(graph, None, info, module)
    kept._exposed = [*kept._exposed, *exposed]
    return made


def _expose(forward: Graph, tensors: Iterable[Tensor]) -> list[Tensor]:
    """Let callers of the forward graph see what the gradient graph takes; returns the new outputs."""
    hidden = [t for t in tensors if t not in forward.inputs and t not in forward.outputs]
    if hidden and forward.ir._core.is_called(forward._id):
        raise GraphError(
            f"create_grad_graph: the forward graph is called already, got {shown(forward)}, expected gradient graphs "
            "before calls"
        )
    with forward:
        for tensor in hidden:
            graph_output(tensor)
    return hidden


def _members(name: str, tensors: Iterable[Tensor] | None, known: tuple[Tensor, ...]) -> list[Tensor]:
    if tensors is None:
        return list(known)
    where = "create_grad_graph"
    found = [
        read_a(f"{where}: an item of {name}", t, Tensor)
        for t in read_items(where, name, tensors, kind="tensors")
    ]
    twice, others = duplicate_items(found), [t for t in found if t not in known]
    if twice:
        raise AttributeValueError(
            f"create_grad_graph: {name} has tensors twice, got {shown(twice)}, expected each once"
        )
    if others:
        raise GraphError(
            f"create_grad_graph: {name} has tensors of another graph, got {shown(others)}, expected some of "
            f"{shown(list(known))}"
        )
    return found


def _check_parameters(module: GraphModule, number: int) -> None:
    where = f"{type(module).__qualname__}.build_grad"
    parameters = inspect.signature(module.build_grad).parameters.values()
    wrong = [p.name for p in parameters if p.kind not in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if wrong:
        raise ArgumentTypeError(
            f"{where}: other parameters than positional ones, got {wrong}, expected one for each gradient"
        )
    least = sum(p.default is p.empty for p in parameters)
    if not least <= number <= len(parameters):
        raise ArgumentTypeError(
            f"{where}: takes {len(parameters)} gradients, got {number} provided, expected one for each"
        )


def _tensors(result: Any) -> Iterator[Tensor]:
    for tensor in [] if result is None else [result] if isinstance(result, Tensor) else result:
        if not isinstance(tensor, Tensor):
            raise ArgumentTypeError(
                f"build_grad: returned no Tensor, got {shown(tensor)}, expected a Tensor for each input"
            )
        yield tensor


def _check_returned(returned: list[Tensor], wanted: list[Tensor]) -> None:
    if len(returned) != len(wanted):
        many = "Too many" if len(returned) > len(wanted) else "Not enough"
        raise GraphError(
            f"build_grad: {many} outputs, got {len(returned)}, expected gradients of {[_short(t) for t in wanted]}"
        )
    for i, (gradient, tensor) in enumerate(zip(returned, wanted, strict=True)):
        check_shape(f"output {i}, the gradient of {_short(tensor)!r}", gradient, tensor)


def _short(tensor: Tensor) -> str:
    return tensor.name.rpartition("/")[2]
