"""Branches: each replica runs one of two graphs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from popsr._program.building.emit import emit_op
from popsr._program.building.transaction import transactional
from popsr._program.graph import Graph
from popsr._program.ir import Ir
from popsr._program.tensor import Tensor, TensorLike
from popsr._support.host.arguments import is_a, read_a, read_flag, read_index, read_items, read_mapping
from popsr._support.text.entry_points import public, public_call
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, GraphError
from popsr.ops._facts import public_op
from popsr.ops._sites import Site, require_modifiable
from popsr.ops.program.control import _bind_graph

__all__ = ["conditional", "conditional_with_info"]

BranchInputs = Iterable[TensorLike | Iterable[TensorLike]]


@public
class ConditionalSiteInfo(Site):
    """A ``conditional`` op, seen from both sides.

    Inputs here are the condition, the inputs of the then branch, the inputs of the else branch.
    """

    def __init__(self, ir: Ir, op: int, called: tuple[Graph, Graph]) -> None:
        """Of an op; made by ``conditional_with_info``."""
        super().__init__(ir, op)
        graphs = read_items("ConditionalSiteInfo", "called", called, kind="two graphs")
        then_branch, else_branch = graphs if len(graphs) == 2 else (graphs, graphs)
        self._called = (
            read_a("ConditionalSiteInfo: called", then_branch, Graph),
            read_a("ConditionalSiteInfo: called", else_branch, Graph),
        )

    @property
    def called_graph(self) -> tuple[Graph, Graph]:
        """The then branch and the else branch."""
        return self._called

    def graph_to_parent_input_index(self, idx: int, then_branch: bool = True) -> int:
        """Position here of input ``idx`` of a branch."""
        begin, end = self._range(read_flag("graph_to_parent_input_index: then_branch", then_branch))
        return begin + read_index("graph_to_parent_input_index: index", idx, end - begin)

    def parent_to_graph_input_index(self, idx: int) -> int:
        """Position in its branch of input ``idx`` here; IndexError for the condition."""
        begin, _ = self._range(self._is_then("parent_to_graph_input_index", idx))
        return read_index("parent_to_graph_input_index: index", idx, len(self.inputs)) - begin

    def is_parent_index_in_then_branch(self, idx: int) -> bool:
        """True if input ``idx`` here is passed to the then branch. IndexError for the condition."""
        return self._is_then("is_parent_index_in_then_branch", idx)

    def graph_to_parent_output_index(self, idx: int, then_branch: bool = True) -> int:
        """Position here of output ``idx`` of a branch."""
        outputs = self._called[
            not read_flag("graph_to_parent_output_index: then_branch", then_branch)
        ].outputs
        return read_index("graph_to_parent_output_index: index", idx, len(outputs))

    def parent_to_graph_output_index(self, idx: int, then_branch: bool = True) -> int:
        """Position in a branch of output ``idx`` here."""
        outputs = self._called[
            not read_flag("parent_to_graph_output_index: then_branch", then_branch)
        ].outputs
        return read_index("parent_to_graph_output_index: index", idx, len(outputs))

    def graph_to_parent(self, graph_tensor: Tensor) -> Tensor:
        """The tensor here that stands for an input or output of a branch.

        Raises:
            ValueError: it is neither.
        """
        for then_branch in (True, False):
            graph, (begin, end) = self._called[not then_branch], self._range(then_branch)
            # A tensor that is both is what was passed.
            for theirs, parents in (
                (graph.inputs, self.inputs[begin:end]),
                (graph.outputs, self.outputs),
            ):
                if is_a(graph_tensor, Tensor) and graph_tensor in theirs:
                    return parents[theirs.index(graph_tensor)]
        raise GraphError(
            f"graph_to_parent: no input or output of a branch, got {shown(graph_tensor)}, expected one of "
            f"{shown(self._called[0])} or {shown(self._called[1])}"
        )

    def parent_to_graph(self, parent_tensor: Tensor) -> Tensor:
        """The branch's input that a tensor is passed as; the first of several, in the then branch if it is there.

        Raises:
            ValueError: it is passed to neither branch.
        """
        for then_branch in (True, False):
            begin, end = self._range(then_branch)
            passed = self.inputs[begin:end]
            if is_a(parent_tensor, Tensor) and parent_tensor in passed:
                return self._called[not then_branch].inputs[passed.index(parent_tensor)]
        raise self._not_passed("parent_to_graph", parent_tensor)

    @transactional
    def set_parent_input_modified(self, parent_tensor: Tensor, infer_modified_regions: bool = True) -> None:
        """Let in-place writes of the branches also happen to the tensor that was passed.

        They happen on the replicas that take the branch.

        Args:
            parent_tensor: an input of a branch; of both when it is passed to both.
            infer_modified_regions: accepted for PopXL programs; what a branch does not write keeps its value anyway.
        """
        del infer_modified_regions
        read_a("set_parent_input_modified: parent_tensor", parent_tensor, Tensor)
        ranges = [self._range(then_branch) for then_branch in (True, False)]
        inputs = self.inputs
        found = [
            begin + inputs[begin:end].index(parent_tensor)
            for begin, end in ranges
            if parent_tensor in inputs[begin:end]
        ]
        if not found:
            raise self._not_passed("set_parent_input_modified", parent_tensor)
        require_modifiable("set_parent_input_modified", parent_tensor)
        for idx in found:
            self._ir._core.mark_modified(self._op, idx)

    def _range(self, then_branch: bool) -> tuple[int, int]:
        """Inputs of a branch among ours."""
        middle = 1 + len(self._called[0].inputs)
        return (1, middle) if then_branch else (middle, middle + len(self._called[1].inputs))

    def _is_then(self, where: str, idx: int) -> bool:
        return read_index(f"{where}: index", idx, len(self.inputs), begin=1) < self._range(False)[0]

    def _not_passed(self, where: str, t: Any) -> GraphError:
        return GraphError(
            f"{where}: no input of a branch, got {shown(t)}, expected one of {shown(list(self.inputs[1:]))}"
        )


@public_op
@transactional
def conditional(
    cond: Tensor,
    then_branch: Graph,
    else_branch: Graph,
    then_inputs: BranchInputs | None = None,
    else_inputs: BranchInputs | None = None,
    then_inputs_dict: Mapping[Tensor, TensorLike] | None = None,
    else_inputs_dict: Mapping[Tensor, TensorLike] | None = None,
) -> tuple[Tensor, ...]:
    """Run one of two graphs, on each replica the one that its own condition picks.

    What a branch does happens only on the replicas that take it: writes in place, to remote memory and to the host,
    prints, and moving on in streams, whose positions each replica counts for itself.

    Args:
        cond: the condition, bool of one element.
        then_branch: the graph that runs where the condition holds.
        else_branch: the graph that runs elsewhere, with outputs of the same shapes and dtypes.
        then_inputs: inputs of the then branch in order; iterables are flattened one level.
        else_inputs: inputs of the else branch.
        then_inputs_dict: further inputs by the then branch's tensor.
        else_inputs_dict: further inputs by the else branch's tensor.
    Returns:
        The outputs of the branch that ran.
    Example:
        >>> def choose(cond, t):
        ...     ir = popsr.gir()
        ...     then_branch = ir.create_graph(lambda t: t + t, t)
        ...     else_branch = ir.create_graph(lambda t: t * 0.5, t)
        ...     return ops.conditional(cond, then_branch, else_branch, then_inputs=[t], else_inputs=[t])
        >>> evaluate(choose, np.bool_(False), [1.0, 2.0])
        [array([0.5, 1. ], dtype=float32)]
    """
    return conditional_with_info(
        cond, then_branch, else_branch, then_inputs, else_inputs, then_inputs_dict, else_inputs_dict
    ).outputs


@public_call
@transactional
def conditional_with_info(
    cond: Tensor,
    then_branch: Graph,
    else_branch: Graph,
    then_inputs: BranchInputs | None = None,
    else_inputs: BranchInputs | None = None,
    then_inputs_dict: Mapping[Tensor, TensorLike] | None = None,
    else_inputs_dict: Mapping[Tensor, TensorLike] | None = None,
    check_inputs: bool = True,
) -> ConditionalSiteInfo:
    """As ``conditional``, but return both sides of it.

    A collective in a branch needs all members of a group or none: when the program runs and some of them take the
    other branch, ``Session.run`` raises ReplicaError before anything is exchanged.

    Its gradient is a conditional on the same condition: each replica runs the gradient of the branch that it ran, in
    which needed intermediate values of the branch are computed again. What only the other branch takes gets zeros.

    Args:
        cond: the condition, bool of one element.
        then_branch: the graph that runs where the condition holds.
        else_branch: the graph that runs elsewhere, with outputs of the same shapes and dtypes.
        then_inputs: inputs of the then branch in order; iterables are flattened one level.
        else_inputs: inputs of the else branch.
        then_inputs_dict: further inputs by the then branch's tensor.
        else_inputs_dict: further inputs by the else branch's tensor.
        check_inputs: report missing inputs as such.
    Returns:
        The conditional, with its inputs and outputs.
    Raises:
        ValueError: outputs of the branches differ in number or shape, the condition has several elements, or inputs
            are too many, too few, one twice, or of another shape than the branch takes.
        TypeError: the condition is not bool, or outputs or inputs are of another dtype.
        GraphError: a constant is passed by reference.
    """
    where = "conditional"
    branches = (
        ("then_branch", then_branch, "then_inputs", then_inputs, then_inputs_dict),
        ("else_branch", else_branch, "else_inputs", else_inputs, else_inputs_dict),
    )
    tensors: list[Tensor] = []
    modified: list[int] = []
    for name, graph, inputs_name, inputs, inputs_dict in branches:
        if inputs is not None and (not is_a(inputs, Iterable) or is_a(inputs, (Tensor, str))):
            raise ArgumentTypeError(
                f"{where}: {inputs_name} is not a sequence of tensors, got {shown(inputs)}"
            )
        named = read_mapping(where, f"{inputs_name}_dict", inputs_dict)
        flat = () if inputs is None else read_items(where, inputs_name, inputs, kind="tensors")
        given, by_ref = _bind_graph(where, name, graph, flat, named, check_inputs)
        modified += [1 + len(tensors) + i for i in by_ref]
        tensors += given
    ir = then_branch.ir
    attrs = {"then_branch": then_branch._id, "else_branch": else_branch._id}
    op, _ = emit_op(where, {"cond": cond, "inputs": tensors}, attrs, outputs=max(1, len(then_branch.outputs)))
    for i in modified:
        ir._core.mark_modified(op, i)
    return ConditionalSiteInfo(ir, op, (then_branch, else_branch))
