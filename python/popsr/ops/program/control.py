"""Ops that run other graphs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from popsr._program.building.emit import emit_op
from popsr._program.building.transaction import transactional
from popsr._program.context import _context
from popsr._program.graph import Graph
from popsr._program.op import Op
from popsr._program.tensor import Tensor, TensorLike
from popsr._program.variables.constants import as_operand
from popsr._support.host.arguments import is_a, read_flag, read_index, read_int, read_items, read_mapping
from popsr._support.text.entry_points import public, public_call
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError, GraphError
from popsr.ops._facts import public_op
from popsr.ops._sites import Site, require_modifiable

__all__ = ["CallSiteInfo", "call", "call_with_info", "repeat", "repeat_with_info"]


@public
class CallSiteInfo(Site):
    """A ``call`` or ``repeat`` op, seen from both sides. Outputs are live: autodiff may add some.

    Args:
        subgraph_op: the op, as in ``graph.ops``; ``call_with_info`` and ``repeat_with_info`` make it and return this.
    Raises:
        TypeError: another op.
    """

    def __init__(self, subgraph_op: Op) -> None:
        """The sides of an op."""
        if not is_a(subgraph_op, Op) or subgraph_op.kind not in ("call", "repeat"):
            raise ArgumentTypeError(f"CallSiteInfo: not a call or repeat op, got {shown(subgraph_op)}")
        super().__init__(subgraph_op._ir, subgraph_op.id)
        self._called = self._ir._graph(subgraph_op.attributes["graph"])

    @property
    def called_graph(self) -> Graph:
        """The graph that is run."""
        return self._called

    def graph_to_parent_input_index(self, idx: int) -> int:
        """Position here of the graph's input ``idx``."""
        return read_index("graph_to_parent_input_index: index", idx, len(self.inputs))

    def parent_to_graph_input_index(self, idx: int) -> int:
        """Position in the graph of input ``idx`` here."""
        return read_index("parent_to_graph_input_index: index", idx, len(self.inputs))

    def graph_to_parent_output_index(self, idx: int) -> int:
        """Position here of the graph's output ``idx``."""
        return read_index("graph_to_parent_output_index: index", idx, len(self.outputs))

    def parent_to_graph_output_index(self, idx: int) -> int:
        """Position in the graph of output ``idx`` here."""
        return read_index("parent_to_graph_output_index: index", idx, len(self.outputs))

    def graph_to_parent(self, graph_tensor: Tensor) -> Tensor:
        """The tensor here that stands for an input or output of the graph.

        Raises:
            ValueError: it is neither.
        """
        return self._graph_to_parents([graph_tensor])[0]

    def _graph_to_parents(self, graph_tensors: Iterable[Tensor]) -> list[Tensor]:
        """``graph_to_parent`` of many tensors at once."""
        ours: dict[Tensor, Tensor] = {}
        # A tensor that is both is what was passed; the first place counts where it stands twice.
        for theirs, parents in ((self._called.outputs, self.outputs), (self._called.inputs, self.inputs)):
            ours.update(zip(reversed(theirs), reversed(parents[: len(theirs)]), strict=True))
        result = []
        for tensor in graph_tensors:
            if not is_a(tensor, Tensor) or tensor not in ours:
                raise GraphError(
                    f"graph_to_parent: no input or output of the called graph, got {shown(tensor)}, expected one of "
                    f"{shown(self._called)}"
                )
            result.append(ours[tensor])
        return result

    def parent_to_graph(self, parent_tensor: Tensor) -> Tensor:
        """The graph's input that a tensor is passed as; the first of several.

        Raises:
            ValueError: it is not passed.
        """
        inputs = self.inputs
        if not is_a(parent_tensor, Tensor) or parent_tensor not in inputs:
            raise GraphError(
                f"parent_to_graph: no input of this call, got {shown(parent_tensor)}, expected one of "
                f"{shown(list(inputs))}"
            )
        return self._called.inputs[inputs.index(parent_tensor)]

    def set_parent_input_modified(self, parent_tensor: Tensor, infer_modified_regions: bool = False) -> None:
        """Let in-place writes of the graph also happen to the tensor that was passed.

        Args:
            parent_tensor: an input of this call.
            infer_modified_regions: accepted for PopXL programs; what the graph does not write keeps its value anyway.
        """
        del infer_modified_regions
        inputs = self.inputs
        if not is_a(parent_tensor, Tensor) or parent_tensor not in inputs:
            raise GraphError(
                f"set_parent_input_modified: no input of this call, got {shown(parent_tensor)}, "
                f"expected one of {shown(list(inputs))}"
            )
        require_modifiable("set_parent_input_modified", parent_tensor)
        self._ir._core.mark_modified(self._op, inputs.index(parent_tensor))


@public_op
@transactional
def call(
    graph: Graph,
    *inputs: TensorLike | Iterable[TensorLike],
    inputs_dict: Mapping[Tensor, TensorLike] | None = None,
) -> tuple[Tensor, ...]:
    """Run a graph.

    Inputs are passed by value unless the graph takes them by reference. Numbers and arrays become constants.

    Args:
        graph: the graph.
        *inputs: its inputs in order; iterables are flattened one level.
        inputs_dict: further inputs by the graph's tensor.
    Returns:
        Its outputs.
    Example:
        >>> def twice(t):
        ...     double = popsr.gir().create_graph(lambda x: x + x, t)
        ...     return ops.call(double, *ops.call(double, t))
        >>> evaluate(twice, [1.0, 2.0])
        [array([4., 8.], dtype=float32)]
    """
    return call_with_info(graph, *inputs, inputs_dict=inputs_dict).outputs


@public_call
@transactional
def call_with_info(
    graph: Graph,
    *inputs: TensorLike | Iterable[TensorLike],
    inputs_dict: Mapping[Tensor, TensorLike] | None = None,
    check_inputs: bool = True,
) -> CallSiteInfo:
    """As ``call``, but return both sides of it.

    Args:
        graph: the graph.
        *inputs: its inputs in order; iterables are flattened one level.
        inputs_dict: further inputs by the graph's tensor.
        check_inputs: report missing inputs as such.
    Returns:
        The call, with its inputs and outputs.
    Raises:
        ValueError: too many inputs, too few, one twice, or of another shape than the graph takes.
        TypeError: an input of another dtype, or neither a tensor nor host data.
        GraphError: a constant is passed by reference.
    """
    return _emit_call("call", graph, inputs, inputs_dict, check_inputs, {})


@public_op
@transactional
def repeat(
    graph: Graph,
    repeat_count: int,
    *inputs: TensorLike | Iterable[TensorLike],
    inputs_dict: Mapping[Tensor, TensorLike] | None = None,
) -> tuple[Tensor, ...]:
    """Run a graph several times. Output i becomes input i of the next iteration; the other inputs stay.

    Args:
        graph: the graph.
        repeat_count: how often; 0 gives the initial values.
        *inputs: its inputs in order; iterables are flattened one level.
        inputs_dict: further inputs by the graph's tensor.
    Returns:
        The outputs of the last iteration.
    Example:
        >>> def power(t):
        ...     double = popsr.gir().create_graph(lambda x: x + x, t)
        ...     return ops.repeat(double, 10, t)
        >>> evaluate(power, [1.0, 2.0])
        [array([1024., 2048.], dtype=float32)]
    """
    return repeat_with_info(graph, repeat_count, *inputs, inputs_dict=inputs_dict).outputs


@public_call
@transactional
def repeat_with_info(
    graph: Graph,
    repeat_count: int,
    *inputs: TensorLike | Iterable[TensorLike],
    inputs_dict: Mapping[Tensor, TensorLike] | None = None,
    check_inputs: bool = True,
) -> CallSiteInfo:
    """As ``repeat``, but return both sides of it.

    Args:
        graph: the graph.
        repeat_count: how often; 0 gives the initial values.
        *inputs: its inputs in order; iterables are flattened one level.
        inputs_dict: further inputs by the graph's tensor.
        check_inputs: report missing inputs as such.
    Returns:
        The loop, with its inputs and outputs.
    Raises:
        ValueError: as for ``call``, a negative count, or fewer inputs than outputs.
    """
    count = read_int("repeat: repeat_count", repeat_count)
    if count < 0:
        raise AttributeValueError(f"repeat: Repeat count must be >= 0, got {count}")
    if is_a(graph, Graph) and len(graph.inputs) < len(graph.outputs):
        raise GraphError(
            f"repeat: To repeat the subgraph it needs an input per output, got {len(graph.inputs)} inputs and "
            f"{len(graph.outputs)} outputs of {shown(graph)}, expected an input for each output"
        )
    info = _emit_call("repeat", graph, inputs, inputs_dict, check_inputs, {"count": count})
    info._ir._core.skip_subgraph_number()  # PopXL numbers a wrapper graph here
    return info


def _emit_call(
    where: str,
    graph: Graph,
    inputs: tuple[Any, ...],
    inputs_dict: Mapping[Tensor, Any] | None,
    check_inputs: bool,
    attrs: dict[str, Any],
    names: tuple[str, ...] | None = None,
) -> CallSiteInfo:
    tensors, modified = _bind_graph(where, "graph", graph, inputs, inputs_dict, check_inputs)
    op, _ = emit_op(
        where,
        {"inputs": tensors},
        {"graph": graph._id, **attrs},
        outputs=max(1, len(graph.outputs)),
        name=names,
    )
    for i in modified:
        graph.ir._core.mark_modified(op, i)
    return CallSiteInfo(Op(graph.ir, op))


def _bind_graph(
    where: str,
    name: str,
    graph: Graph,
    inputs: tuple[Any, ...],
    inputs_dict: Mapping[Tensor, Any] | None,
    check_inputs: bool,
) -> tuple[list[Tensor], list[int]]:
    """Tensors for the inputs of a graph in order, and which of them it takes by reference."""
    if not isinstance(graph, Graph):
        raise ArgumentTypeError(f"{where}: {name} is not a Graph, got {shown(graph)}")
    ir = _context.graph_of(where).ir
    if graph.ir is not ir:
        raise GraphError(
            f"{where}: {name} of another Ir, got {shown(graph)}, expected a graph of {shown(ir)}"
        )
    wanted = graph.inputs
    given = _bind_inputs(where, wanted, inputs, read_mapping(where, "inputs_dict", inputs_dict))
    missing = [t for t in wanted if t not in given]
    if missing and read_flag(f"{where}: check_inputs", check_inputs):
        raise GraphError(
            f"{where}: Not enough inputs have been provided, got {len(given)} of {len(wanted)} for "
            f"{shown(graph)}: missing {shown(missing)}"
        )
    modified = []  # without host data: nobody sees what becomes of it
    for i, t in enumerate(wanted):
        if isinstance(given.get(t), Tensor) and ir._core.tensor(t._id).by_ref:
            require_modifiable(f"{where}: input {t.id!r}", given[t])
            modified.append(i)
    return [_argument(where, t, given[t]) for t in wanted if t in given], modified


def _bind_inputs(
    where: str, wanted: tuple[Tensor, ...], inputs: tuple[Any, ...], inputs_dict: Mapping[Tensor, Any]
) -> dict[Tensor, Any]:
    flat: list[Any] = []
    for value in inputs:
        nested = (
            isinstance(value, Iterable)
            and not isinstance(value, (Tensor, str))
            and not hasattr(value, "dtype")
        )
        flat.extend(read_items(where, "inputs", value, kind="tensors") if nested else (value,))
    if len(flat) > len(wanted):
        raise GraphError(
            f"{where}: Too many inputs have been provided, got {len(flat)}, expected at most {len(wanted)}"
        )
    given = dict(zip(wanted, flat, strict=False))
    known = set(wanted)
    for key, value in inputs_dict.items():
        if not is_a(key, Tensor) or key not in known:
            raise GraphError(
                f"{where}: {shown(key)} is not in the called graph, expected one of {shown(list(wanted))}"
            )
        if key in given:
            raise GraphError(
                f"{where}: Graph input tensor is specified twice, got {shown(key)}, expected each input once"
            )
        given[key] = value
    return given


def _argument(where: str, wanted: Tensor, value: Any) -> Tensor:
    try:
        operand: Tensor = as_operand(value, wanted.dtype)
        return operand
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(
            f"{where}: no tensor for {shown(wanted)}, got {shown(value)}: {error}"
        ) from None
