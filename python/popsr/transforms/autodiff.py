"""Reverse-mode differentiation of graphs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, overload

from popsr import _core
from popsr._program.building.transaction import transactional
from popsr._program.graph import Graph
from popsr._program.ir import Ir
from popsr._program.tensor import Tensor
from popsr._support import records as _records
from popsr._support.host.arguments import is_a, read_choice, read_flag, read_items, read_mapping
from popsr._support.host.choices import Choices
from popsr._support.text.entry_points import public, public_call
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, GraphError
from popsr.ops.program.control import CallSiteInfo

__all__ = ["ExpectedConnection", "ExpectedConnectionType", "GradGraphInfo", "autodiff"]

Replicas = Literal["own", "sum"]


class ExpectedConnectionType(Choices):
    """Role of an input or output of a gradient graph."""

    Fwd = "Fwd"
    """The value of a forward tensor."""
    FwdGrad = "FwdGrad"
    """The gradient of a forward tensor."""


@public
class ExpectedConnection:
    """An input or output of a gradient graph, in terms of the forward graph."""

    __slots__ = ("_fwd_tensor", "_type")

    _type: ExpectedConnectionType
    _fwd_tensor: Tensor

    def __init__(self) -> None:
        raise ArgumentTypeError("ExpectedConnection: cannot be constructed, use autodiff()")

    @classmethod
    def _of(cls, connection_type: ExpectedConnectionType, fwd_tensor: Tensor) -> ExpectedConnection:
        self = cls.__new__(cls)
        self._type, self._fwd_tensor = connection_type, fwd_tensor
        return self

    @property
    def fwd_tensor(self) -> Tensor:
        """The forward tensor."""
        return self._fwd_tensor

    @property
    def connection_type(self) -> ExpectedConnectionType:
        """Its value or its gradient."""
        return self._type

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ExpectedConnection)
            and other._type is self._type
            and other._fwd_tensor is self._fwd_tensor
        )

    def __hash__(self) -> int:
        return hash((self._type, self._fwd_tensor))

    def __repr__(self) -> str:
        return f"ExpectedConnection({self._type.name}, {self._fwd_tensor!r})"


@public
class GradGraphInfo:
    """A gradient graph and how to call it."""

    __slots__ = ("_expected_inputs", "_expected_outputs", "_forward", "_graph")

    _forward: Graph
    _graph: Graph
    _expected_inputs: tuple[ExpectedConnection, ...]
    _expected_outputs: tuple[ExpectedConnection, ...]

    def __init__(self) -> None:
        raise ArgumentTypeError("GradGraphInfo: cannot be constructed, use autodiff()")

    @classmethod
    def _of(cls, ir: Ir, grad: _records.GradGraph) -> GradGraphInfo:
        self = cls.__new__(cls)
        self._forward, self._graph = ir._graph(grad.forward), ir._graph(grad.gradient)
        self._expected_inputs = _connections(ir, grad.inputs)
        self._expected_outputs = _connections(ir, grad.outputs)
        return self

    @property
    def graph(self) -> Graph:
        """The gradient graph."""
        return self._graph

    @property
    def forward_graph(self) -> Graph:
        """The graph that was differentiated."""
        return self._forward

    @property
    def expected_inputs(self) -> tuple[ExpectedConnection, ...]:
        """Inputs of the gradient graph: provided gradients, then forward values that it needs."""
        return self._expected_inputs

    @property
    def expected_outputs(self) -> tuple[ExpectedConnection, ...]:
        """Outputs of the gradient graph: the required gradients."""
        return self._expected_outputs

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Forward tensors of the inputs."""
        return tuple(each.fwd_tensor for each in self._expected_inputs)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Forward tensors of the outputs."""
        return tuple(each.fwd_tensor for each in self._expected_outputs)

    def inputs_dict(self, fwd_call_info: CallSiteInfo) -> dict[Tensor, Tensor]:
        """Forward values for a call of the gradient graph: its inputs, and the tensors at a call of the forward graph.

        The gradients that the graph starts from are passed positionally beside them.

        Args:
            fwd_call_info: a call of the forward graph.
        Raises:
            TypeError: it is a call of another graph.
        """
        self._check_call("inputs_dict", fwd_call_info, self._forward)
        values = {
            theirs: each.fwd_tensor
            # Whoever adds inputs to a gradient graph, for state, passes them too.
            for theirs, each in zip(self._graph.inputs, self._expected_inputs, strict=False)
            if each.connection_type is ExpectedConnectionType.Fwd
        }
        return dict(zip(values, fwd_call_info._graph_to_parents(values.values()), strict=True))

    def fwd_graph_ins_to_grad_parent_outs(self, grad_call_info: CallSiteInfo) -> dict[Tensor, Tensor]:
        """Inputs of the forward graph to their gradients at a call of the gradient graph.

        Args:
            grad_call_info: a call of the gradient graph.
        """
        self._check_call("fwd_graph_ins_to_grad_parent_outs", grad_call_info, self._graph)
        inputs = set(self._forward.inputs)
        return {
            each.fwd_tensor: gradient
            for each, gradient in zip(self._expected_outputs, grad_call_info.outputs, strict=False)
            if each.fwd_tensor in inputs
        }

    def fwd_parent_ins_to_grad_parent_outs(
        self, fwd_call_info: CallSiteInfo, grad_call_info: CallSiteInfo
    ) -> dict[Tensor, Tensor]:
        """Tensors passed to a call of the forward graph to their gradients.

        Args:
            fwd_call_info: a call of the forward graph.
            grad_call_info: a call of the gradient graph.
        """
        self._check_call("fwd_parent_ins_to_grad_parent_outs", fwd_call_info, self._forward)
        gradients = self.fwd_graph_ins_to_grad_parent_outs(grad_call_info)
        return dict(zip(fwd_call_info._graph_to_parents(gradients), gradients.values(), strict=True))

    def _check_call(self, where: str, info: CallSiteInfo, graph: Graph) -> None:
        if not is_a(info, CallSiteInfo) or info.called_graph is not graph:
            raise ArgumentTypeError(
                f"{where}: no call of {shown(graph)}, got {shown(info)}, "
                "expected what call_with_info or repeat_with_info of that graph returned"
            )

    def _to_record(self) -> _records.GradGraph:
        return _records.GradGraph(
            self._forward._id,
            self._graph._id,
            [_connection(each) for each in self._expected_inputs],
            [_connection(each) for each in self._expected_outputs],
        )

    def __repr__(self) -> str:
        lines = [f"GradGraphInfo[graph={self._graph!r} forward_graph={self._forward!r}"]
        for name, each in (("inputs", self._expected_inputs), ("outputs", self._expected_outputs)):
            lines.append(f"  {name}:")
            lines += [f"    {i}: {connection!r}" for i, connection in enumerate(each)]
        return "\n".join(lines) + "]"


def _connections(ir: Ir, pairs: list[_records.Connection]) -> tuple[ExpectedConnection, ...]:
    kinds = (ExpectedConnectionType.Fwd, ExpectedConnectionType.FwdGrad)
    return tuple(
        ExpectedConnection._of(kinds[is_gradient], ir._tensor(tensor)) for is_gradient, tensor in pairs
    )


def _connection(each: ExpectedConnection) -> _records.Connection:
    is_gradient = each.connection_type is ExpectedConnectionType.FwdGrad
    return _records.Connection(is_gradient, each.fwd_tensor._id)


@overload
def autodiff(
    graph: Graph,
    grads_provided: Iterable[Tensor] | None = None,
    grads_required: Iterable[Tensor] | None = None,
    called_graphs_grad_info: Mapping[Graph, GradGraphInfo] | None = None,
    return_all_grad_graphs: Literal[False] = False,
    *,
    replicas: Replicas = "own",
) -> GradGraphInfo: ...


@overload
def autodiff(
    graph: Graph,
    grads_provided: Iterable[Tensor] | None = None,
    grads_required: Iterable[Tensor] | None = None,
    called_graphs_grad_info: Mapping[Graph, GradGraphInfo] | None = None,
    *,
    return_all_grad_graphs: Literal[True],
    replicas: Replicas = "own",
) -> dict[Graph, GradGraphInfo]: ...


@public_call
@transactional
def autodiff(
    graph: Graph,
    grads_provided: Iterable[Tensor] | None = None,
    grads_required: Iterable[Tensor] | None = None,
    called_graphs_grad_info: Mapping[Graph, GradGraphInfo] | None = None,
    return_all_grad_graphs: bool = False,
    *,
    replicas: Replicas = "own",
) -> GradGraphInfo | dict[Graph, GradGraphInfo]:
    """Build the gradient graph of a graph, and of the graphs it calls.

    Intermediate values that the gradient needs become further outputs of the graph and of its calls.

    Args:
        graph: the graph.
        grads_provided: tensors whose gradients are given to the gradient graph. Default: all outputs.
        grads_required: tensors whose gradients it returns. Default: all inputs.
        called_graphs_grad_info: known gradient graphs of graphs that it calls.
        return_all_grad_graphs: return gradient graphs of called graphs too.
        replicas: "own": the gradients are what each replica contributes, as in PopXL, and collectives have the
            gradients that their names say. "sum": the gradients are whole, the derivatives of the sum over replicas of
            what the given gradients belong to, where replicas that hold the same count once. They are summed where a
            value forks into replicas that use it differently, over groups that follow from the partitions, and are
            equal on the replicas that share the value: data parallelism then needs no all-reduce of gradients, tensor
            parallelism no ``*_identical_*`` collectives, and ``replicated_all_reduce`` ("add" or "mean") passes
            gradients on. The given gradients have to be whole, and the graph has to be called before: its calls tell
            which replicas share its inputs.
    Returns:
        The gradient graph; with ``return_all_grad_graphs`` all of them by forward graph.
    Raises:
        GraphError: the graph modifies a tensor in place, a required gradient does not exist, or tensors are not of
            the graph. With ``replicas="sum"``: nothing calls the graph, it has an exchange between replicas that has no
            transpose, or no groups of equal size make a gradient whole.
        ValueError: ``replicas`` is another word.
    """
    read_choice("autodiff", "replicas", replicas, ("own", "sum"))
    if not isinstance(graph, Graph):
        raise ArgumentTypeError(
            f"autodiff: graph is not a Graph, got {shown(graph)}, expected what ir.create_graph returns"
        )
    read_flag("autodiff: return_all_grad_graphs", return_all_grad_graphs)
    ir = graph.ir
    called = []
    known = read_mapping("autodiff", "called_graphs_grad_info", called_graphs_grad_info)
    for key, info in known.items():
        if not isinstance(info, GradGraphInfo) or info.forward_graph is not key:
            raise ArgumentTypeError(
                f"autodiff: called_graphs_grad_info has no GradGraphInfo of {shown(key)}, got {shown(info)}, "
                "expected the GradGraphInfo of autodiff(graph)"
            )
        called.append(info._to_record())
    _refuse_unsafe(graph, known)
    result = _core.autodiff(
        ir._core,
        graph._id,
        _ids("grads_provided", graph, grads_provided),
        _ids("grads_required", graph, grads_required),
        called,
        replicas == "sum",
    )
    infos = {ir._graph(forward): GradGraphInfo._of(ir, grad) for forward, grad in result.items()}
    return infos if return_all_grad_graphs else infos[graph]


def _refuse_unsafe(graph: Graph, known: Mapping[Graph, GradGraphInfo]) -> None:
    """Graphs below that have a gradient graph of their own, which was not given."""
    seen: set[Graph] = {graph, *known}
    todo = [called for called in graph.called_graphs if called not in seen]
    while todo:
        called = todo.pop()
        seen.add(called)
        if not called._is_recursively_differentiable:
            raise GraphError(
                f"autodiff: a called graph is marked as unsafe to autodiff, got {shown(called)} with a gradient graph "
                "written by hand, expected that in called_graphs_grad_info"
            )
        todo.extend(each for each in called.called_graphs if each not in seen)


def _ids(name: str, graph: Graph, tensors: Iterable[Tensor] | None) -> list[int] | None:
    if tensors is None:
        return None
    if not is_a(tensors, Iterable) or is_a(tensors, Tensor):
        raise ArgumentTypeError(f"autodiff: {name} is not a sequence of tensors, got {shown(tensors)}")
    ids = []
    for t in read_items("autodiff", name, tensors, kind="tensors"):
        if not isinstance(t, Tensor):
            raise ArgumentTypeError(
                f"autodiff: {name} holds no Tensor, got {shown(t)}, expected Tensors only"
            )
        if t not in graph:
            raise GraphError(
                f"autodiff: {name} holds a tensor of another graph, got {shown(t)}, expected {shown(graph)}"
            )
        ids.append(t._id)
    return ids
