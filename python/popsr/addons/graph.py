"""Graphs whose inputs have names, and such graphs with tensors bound to the names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, Union

from popsr import ops
from popsr._program.building.transaction import transactional
from popsr._program.graph import Graph
from popsr._program.handles import is_retired
from popsr._program.tensor import Tensor, TensorLike
from popsr._support.host.arguments import read_a, read_choice, read_flag, read_items, read_mapping
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown, shown_items
from popsr.addons.graph_text import schedule_text
from popsr.addons.named_tensors import NamedTensors, TensorMap, keep_key
from popsr.errors import ArgumentTypeError, AttributeAccessError, AttributeValueError, GraphError, StateError
from popsr.ops.program.control import CallSiteInfo, _bind_inputs
from popsr.transforms import GradGraphInfo
from popsr.transforms import autodiff as _autodiff

if TYPE_CHECKING:
    from popsr.addons.module_gradients import Aux

__all__ = [
    "BoundGraph",
    "CalledGraphsGradInfoLike",
    "GradGraphInfoLike",
    "GraphLike",
    "GraphWithNamedArgs",
    "differentiate",
    "read_grad_infos",
]


class GraphModule(Protocol):
    """A module, as far as the graph of its ``build`` needs one; see ``popsr.addons.Module``."""

    @property
    def _own_state(self) -> Any: ...

    def build_grad(self, *args: Any, **kwargs: Any) -> Any:
        """Make the ops of the gradient graph."""

    def implements_grad_graph(self) -> bool:
        """True if the class defines ``build_grad``."""

    def create_grad_graph(
        self,
        fwd_graph: GraphWithNamedArgs,
        grads_provided: Iterable[Tensor] | None = None,
        grads_required: Iterable[Tensor] | None = None,
    ) -> GraphWithNamedArgs:
        """The gradient graph that ``build_grad`` makes."""


@public
class BoundGraph:
    """A graph with tensors of its callers for some of its inputs.

    Args:
        graph: the graph.
        args: tensors, or host data, by input of the graph.
    """

    _state: Mapping[Tensor, str] = {}  # keys of inputs that stand for state

    def __init__(self, graph: Graph, args: TensorMap | None = None) -> None:
        """The graph and what is bound."""
        if not isinstance(graph, Graph):
            raise ArgumentTypeError(f"BoundGraph: graph is not a Graph, got {shown(graph)}")
        self.graph = graph
        self.args: dict[Tensor, Any] = dict(read_mapping("BoundGraph", "args", args))

    @transactional
    def call(
        self, *targs: TensorLike | Iterable[TensorLike], args: TensorMap | None = None
    ) -> tuple[Tensor, ...]:
        """Run the graph.

        Args:
            *targs: inputs in order; lists are flattened, numbers and arrays become constants.
            args: further inputs by the graph's tensor; they override what is bound.
        Returns:
            All its outputs.
        Raises:
            ValueError: an input is missing, is there twice, or is none of the graph; see ``ops.call``.
        """
        return self.call_with_info(*targs, args=args).outputs

    @transactional
    def call_with_info(
        self, *targs: TensorLike | Iterable[TensorLike], args: TensorMap | None = None
    ) -> CallSiteInfo:
        """As ``call``, but return both sides of it.

        Args:
            *targs: as for ``call``.
            args: as for ``call``.
        """
        given = {**self.args, **read_mapping("call", "args", args)}
        try:
            return ops.call_with_info(self.graph, *targs, inputs_dict=given)
        except GraphError as error:
            text, _, too_few = str(error).partition(": missing ")
            missing = [key for t, key in self._state.items() if t not in given]
            if not missing or not too_few:
                raise
            found = GraphError(
                f"{text}: missing {shown_items(missing)}, expected graph.bind(variables).call(...)"
            )
            for note in getattr(error, "__notes__", ()):
                found.add_note(note)
            raise found from None

    def bind(self, args: TensorMap) -> BoundGraph:
        """The graph with more bound; what is bound again is replaced.

        Args:
            args: tensors by input of the graph.
        """
        return self._with_state(BoundGraph(self.graph, {**self.args, **read_mapping("bind", "args", args)}))

    def _with_state(self, other: BoundGraph) -> BoundGraph:
        other._state = self._state
        return other

    def subgraph_io_map(
        self, *targs: Tensor, args: TensorMap | None = None, outs: Iterable[Tensor] | None = None
    ) -> dict[Tensor, Tensor]:
        """Inputs and outputs of the graph to tensors of a caller.

        Args:
            *targs: inputs in order.
            args: further inputs by the graph's tensor; they override what is bound.
            outs: outputs in order. Default: none.
        Raises:
            ValueError: more inputs or outputs than the graph has, or an input is missing, is there twice, or is none
                of the graph.
        """
        where = "subgraph_io_map"
        inputs, outputs = self.graph.inputs, self.graph.outputs
        found = () if outs is None else read_items(where, "outs", outs, kind="tensors")
        if len(found) > len(outputs):
            raise GraphError(
                f"{where}: too many outputs, got {len(found)}, expected at most {len(outputs)} of {shown(self.graph)}"
            )
        given = {**self.args, **read_mapping(where, "args", args)}
        mapping = _bind_inputs(where, inputs, targs, given)
        missing = [t for t in inputs if t not in mapping]
        if missing:
            raise GraphError(
                f"{where}: inputs are missing, got {len(mapping)} of {len(inputs)}, expected also {shown(missing)}"
            )
        mapping.update(zip(outputs, found, strict=False))
        return mapping

    def __repr__(self) -> str:
        return f"BoundGraph[{self.graph!r} with {len(self.args)} of {len(self.graph.inputs)} inputs]"


@public
class GraphWithNamedArgs:
    """A graph, names for inputs that stand for state, and what a gradient graph is a gradient of.

    Args:
        graph: the graph.
        args: inputs by name.
        grad_graph_info: of a gradient graph: its expected inputs and outputs.
        from_module: the module whose ``build`` made it.
        aux: what that module's ``build`` left for ``build_grad``.
        called_graphs_grad_info: gradient graphs of graphs that it calls.
    """

    def __init__(
        self,
        graph: Graph,
        args: NamedTensors | None = None,
        grad_graph_info: GradGraphInfo | None = None,
        from_module: GraphModule | None = None,
        aux: Aux | None = None,
        called_graphs_grad_info: CalledGraphsGradInfoLike | None = None,
    ) -> None:
        """The graph and its names."""
        if not isinstance(graph, Graph):
            raise ArgumentTypeError(f"GraphWithNamedArgs: graph is not a Graph, got {shown(graph)}")
        self.graph = graph
        self.args = NamedTensors() if args is None else read_a("GraphWithNamedArgs: args", args, NamedTensors)
        for key, tensor in self.args.to_dict().items():
            keep_key(read_a(f"GraphWithNamedArgs: {key!r} of args", tensor, Tensor), key)
        self.from_module = from_module
        self.aux = aux
        self.called_graphs_grad_info = read_grad_infos("GraphWithNamedArgs", called_graphs_grad_info)
        self._grad_graph_info = grad_graph_info
        self._gradient: Graph | None = None  # what autodiff made last

    @classmethod
    def from_grad_graph(
        cls, grad_graph_info: GradGraphInfo, args: NamedTensors | None = None
    ) -> GraphWithNamedArgs:
        """A gradient graph with names.

        Args:
            grad_graph_info: what ``popsr.transforms.autodiff`` returns.
            args: inputs by name. Default: none.
        """
        read_a("from_grad_graph: grad_graph_info", grad_graph_info, GradGraphInfo)
        return cls(grad_graph_info.graph, args, grad_graph_info)

    @property
    def grad_graph_info(self) -> GradGraphInfo:
        """Expected inputs and outputs of a gradient graph. Settable.

        Raises:
            AttributeError: it is not a gradient graph.
        """
        if self._grad_graph_info is None:
            raise AttributeAccessError(
                f"grad_graph_info: {shown(self.graph)} is not a gradient graph, expected one of autodiff"
            )
        return self._grad_graph_info

    @grad_graph_info.setter
    def grad_graph_info(self, grad_graph_info: GradGraphInfo) -> None:
        self._grad_graph_info = grad_graph_info

    def bind(self, args: NamedTensors | None = None) -> BoundGraph:
        """The graph with tensors for its named inputs.

        Args:
            args: tensors by the same names. Names that only one side has are ignored, so that one tree can be bound to
                several graphs; a name that is missing is reported when the graph is called.
        """
        given = {} if args is None else self.args.to_mapping(read_a("bind: args", args, NamedTensors))
        bound = BoundGraph(self.graph, given)
        bound._state = {tensor: key for key, tensor in self.args.to_dict().items()}
        return bound

    def call(
        self, *targs: TensorLike | Iterable[TensorLike], args: TensorMap | None = None
    ) -> tuple[Tensor, ...]:
        """Run the graph; see ``BoundGraph.call``.

        Args:
            *targs: inputs in order.
            args: further inputs by the graph's tensor.
        """
        return self.bind().call(*targs, args=args)

    def call_with_info(
        self, *targs: TensorLike | Iterable[TensorLike], args: TensorMap | None = None
    ) -> CallSiteInfo:
        """Run the graph and return both sides of the call; see ``BoundGraph.call``.

        Args:
            *targs: inputs in order.
            args: further inputs by the graph's tensor.
        """
        return self.bind().call_with_info(*targs, args=args)

    @transactional
    def autodiff(
        self,
        grads_provided: Iterable[Tensor] | None = None,
        grads_required: Iterable[Tensor] | None = None,
        called_graphs_grad_info: CalledGraphsGradInfoLike | None = None,
        method: Literal["auto", "build_grad", "autodiff"] = "auto",
        force: bool = False,
    ) -> GraphWithNamedArgs:
        """The gradient graph, by the module's ``build_grad`` or by the transform. Once, unless ``force`` is given.

        Args:
            grads_provided: tensors whose gradients are given. Default: all outputs.
            grads_required: tensors whose gradients are wanted. Default: all inputs, by the transform all floating ones.
            called_graphs_grad_info: gradient graphs of graphs that it calls.
            method: "build_grad", "autodiff", or "auto": ``build_grad`` where there is one.
            force: differentiate again.
        Raises:
            ValueError: unknown ``method``, or "build_grad" without a module that has one.
            RuntimeError: it was differentiated before.
        """
        read_choice("autodiff", "method", method, ("auto", "build_grad", "autodiff"))
        done = self._gradient is not None and not is_retired(self._gradient)
        if done and not read_flag("autodiff: force", force):
            raise StateError(
                f"autodiff: already differentiated, got {shown(self.graph)}, expected force=True"
            )
        module = self.from_module
        by_hand = module is not None and module.implements_grad_graph()
        if method == "build_grad" and not by_hand:
            raise AttributeValueError(
                f"autodiff: no build_grad, got from_module {shown(module)}, expected a module that has one"
            )
        if by_hand and method != "autodiff":
            assert module is not None
            result = module.create_grad_graph(self, grads_provided, grads_required)
        else:
            result = differentiate(self, grads_provided, grads_required, called_graphs_grad_info)
        self._gradient = result.graph
        return result

    def copy(self) -> GraphWithNamedArgs:
        """The same graph, a copy of its names, and its gradient info."""
        return GraphWithNamedArgs(self.graph, self.args.copy(), self._grad_graph_info)

    def print_schedule(self) -> str:
        """The ops in the order in which they run, as text: tensors are numbered by first mention."""
        return schedule_text(self.graph, self.args)

    def __repr__(self) -> str:
        return f"GraphWithNamedArgs[{self.graph!r} args={self.args.keys_flat()}]"


GraphLike = Union[Graph, "GraphWithNamedArgs"]
GradGraphInfoLike = Union[GradGraphInfo, "GraphWithNamedArgs"]
CalledGraphsGradInfoLike = (
    Mapping[GraphLike, GradGraphInfoLike] | Mapping[Graph, GradGraphInfo] | Mapping[Graph, GradGraphInfoLike]
)


@public
def read_grad_infos(where: str, infos: Any) -> dict[Graph, GradGraphInfo]:
    """Gradient infos by graph, from a mapping whose keys and values may be graphs with names."""
    return dict(_grad_infos(where, read_mapping(where, "called_graphs_grad_info", infos)))


def _grad_infos(where: str, infos: Mapping[Any, Any]) -> Iterator[tuple[Graph, GradGraphInfo]]:
    for key, value in infos.items():
        graph = key.graph if isinstance(key, GraphWithNamedArgs) else key
        info = value.grad_graph_info if isinstance(value, GraphWithNamedArgs) else value
        if not isinstance(graph, Graph) or not isinstance(info, GradGraphInfo):
            raise ArgumentTypeError(
                f"{where}: called_graphs_grad_info has no graph and GradGraphInfo, got {shown(key)}: {shown(value)}, "
                "expected graphs as keys and GradGraphInfo as values"
            )
        yield graph, info


@public
@transactional
def differentiate(
    graph: GraphLike,
    grads_provided: Iterable[Tensor] | None = None,
    grads_required: Iterable[Tensor] | None = None,
    called_graphs_grad_info: CalledGraphsGradInfoLike | None = None,
) -> GraphWithNamedArgs:
    """See :func:`popsr.addons.transforms.autodiff`."""
    known = graph.called_graphs_grad_info if isinstance(graph, GraphWithNamedArgs) else {}
    forward = graph.graph if isinstance(graph, GraphWithNamedArgs) else graph
    called = {**known, **read_grad_infos("autodiff", called_graphs_grad_info)}
    if grads_required is None and isinstance(forward, Graph):
        grads_required = [t for t in forward.inputs if t.dtype.is_floating_point]
    return GraphWithNamedArgs.from_grad_graph(_autodiff(forward, grads_provided, grads_required, called))
