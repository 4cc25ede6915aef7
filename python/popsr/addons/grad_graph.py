"""Gradient graphs that are written by hand, as ``build_grad`` of a module."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from popsr._program.context import gir
from popsr._program.create_graph import graph_input, graph_output
from popsr._program.graph import Graph
from popsr._program.handles import is_retired
from popsr._program.ir import Ir
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import is_a, read_a, read_flag, read_items, read_mapping, read_text
from popsr._support.lazy import names_only
from popsr._support.records import Connection, GradGraph
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.addons.graph import GraphWithNamedArgs
from popsr.addons.utils import duplicate_items, suffix_graph_name
from popsr.errors import (
    ArgumentTypeError,
    AttributeValueError,
    GraphError,
    ShapeError,
    StateError,
    UnknownNameError,
)
from popsr.transforms import GradGraphInfo

if TYPE_CHECKING:
    from popsr.addons.module import Module

__all__ = ["Aux", "VarGrad", "create", "create_grad_graph_info"]


@public
class Aux:
    """Tensors that ``build`` leaves for ``build_grad``, by key."""

    def __init__(self, values: Mapping[str, Any] | None = None, is_readable: bool = False) -> None:
        """With values, as ``build_grad`` sees them."""
        self._values = dict(read_mapping("Aux", "values", values))
        self._is_readable = read_flag("Aux: is_readable", is_readable)
        self._inputs: dict[Tensor, Tensor] = {}  # of the forward graph to the gradient graph's
        self._exposed: list[Tensor] = []  # outputs of the forward graph for gradient graphs only

    def __setitem__(self, key: str, value: Any) -> None:
        read_text("aux: key", key)
        if self._is_readable:
            raise StateError(f"aux: written in build_grad, got {shown(key)}, expected build to do so")
        self._values[key] = value

    def __getitem__(self, key: str) -> Any:
        if not self._is_readable:
            raise StateError(f"aux: read in build, got {shown(key)}, expected build_grad to do so")
        if not is_a(key, str) or key not in self._values:
            raise UnknownNameError(
                f"aux: no such key, got {shown(key)}, expected one of {list(self._values)}"
            )
        value = self._values[key]
        if not isinstance(value, Tensor):
            return value
        if value not in self._inputs or is_retired(self._inputs[value]):
            name = value.name.rpartition("/")[2]
            made = graph_input(value.shape, value.dtype, name, False, value.meta_shape)
            self._inputs[value] = made
        return self._inputs[value]

    def _for_grad(self) -> Aux:
        return Aux(self._values, True)

    def __repr__(self) -> str:
        return f"Aux({self._values!r})"


@public
class VarGrad:
    """Gradients of variables by dotted name, checked as they are set."""

    def __init__(self, variables: Mapping[str, Tensor] | None = None) -> None:
        """Of the given variables."""
        self._variables = dict(read_mapping("VarGrad", "variables", variables))
        self._gradients: dict[str, Tensor] = {}

    def __setitem__(self, key: str, value: Tensor) -> None:
        if not is_a(key, str) or key not in self._variables:
            raise UnknownNameError(
                f"var_grad: no such variable, got {shown(key)}, expected one of {list(self._variables)}"
            )
        if not isinstance(value, Tensor):
            raise ArgumentTypeError(
                f"var_grad: the gradient of {shown(key)} is not a Tensor, got {shown(value)}"
            )
        _check_shape(f"the gradient of {key!r}", value, self._variables[key])
        self._gradients[key] = value

    def __getitem__(self, key: str) -> Tensor:
        if not is_a(key, str) or key not in self._gradients:
            raise UnknownNameError(
                f"var_grad: no gradient yet, got {shown(key)}, expected one of {list(self._gradients)}"
            )
        return self._gradients[key]


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
    module: Module,
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


def _check_parameters(module: Module, number: int) -> None:
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
        _check_shape(f"output {i}, the gradient of {_short(tensor)!r}", gradient, tensor)


def _check_shape(what: str, gradient: Tensor, tensor: Tensor) -> None:
    if (gradient.shape, gradient.meta_shape) != (tensor.shape, tensor.meta_shape):
        meta = f" with meta_shape {tensor.meta_shape}" if tensor.meta_shape else ""
        raise ShapeError(
            f"build_grad: wrong shape of {what}, got {gradient.shape}, expected {tensor.shape}{meta}"
        )


def _short(tensor: Tensor) -> str:
    return tensor.name.rpartition("/")[2]


__dir__ = names_only(__all__)
