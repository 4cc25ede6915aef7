"""A graph that grows out of tensors of another one, and remembers which tensor of its own stands for which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from popsr._program.building.transaction import transactional
from popsr._program.create_graph import graph_input, graph_output
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import is_a, read_a, read_mapping, read_text
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.addons.graph import BoundGraph
from popsr.errors import GraphError, UnknownNameError

__all__ = ["PipelineBoundGraph"]


@public
class PipelineBoundGraph(BoundGraph):
    """A bound graph whose inputs and outputs are known by the ids of the tensors that they stand for.

    Args:
        *args: graph, and tensors by input of the graph, as for ``BoundGraph``.
        **kwargs: the same by name.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """The graph, with nothing known yet but what is bound."""
        super().__init__(*args, **kwargs)
        self._inputs: dict[str, Tensor] = {
            read_a("PipelineBoundGraph: args", parent, Tensor).id: t for t, parent in self.args.items()
        }
        self._outputs: dict[str, Tensor] = {}

    def _forget_undone(self) -> None:
        """Drop inputs and outputs that a failed call had added to the graph."""
        inputs, outputs = {*self.graph.inputs}, {*self.graph.outputs}
        self.args = {t: parent for t, parent in self.args.items() if t in inputs}
        self._inputs = {name: t for name, t in self._inputs.items() if t in inputs}
        self._outputs = {name: t for name, t in self._outputs.items() if t in outputs}

    def call(  # type: ignore[override] # the names of the reference
        self, *args: Tensor, inputs_dict: Mapping[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, ...]:
        """Run the graph.

        Args:
            *args: inputs in order.
            inputs_dict: further inputs by the graph's tensor; they override what is bound.
        Returns:
            All its outputs.
        Raises:
            ValueError: an input is missing, is there twice, or is none of the graph; see ``ops.call``.
        """
        read_mapping("call", "inputs_dict", inputs_dict)
        self._forget_undone()
        return super().call(*args, args=inputs_dict)

    @property
    def original_output_ids(self) -> list[str]:
        """Ids of the tensors that the outputs stand for, in the order of the outputs."""
        self._forget_undone()
        return list(self._outputs)

    @transactional
    def add_variable_input(self, tensor: Tensor) -> Tensor:
        """The graph's tensor for one of the caller: a new input, by reference, bound to it.

        Args:
            tensor: the tensor of the caller.
        Returns:
            Tensor of its shape and dtype; the same when it is asked for again.
        Raises:
            GraphError: the graph is called already.
        """
        read_a("add_variable_input: tensor", tensor, Tensor)
        self._forget_undone()
        if tensor.id not in self._inputs:
            with self.graph:
                made = graph_input(tensor.shape, tensor.dtype, tensor.name, True, tensor.meta_shape)
            self._inputs[tensor.id] = made
            self.args[made] = tensor
        return self._inputs[tensor.id]

    @transactional
    def add_output_tensor(self, tensor: Tensor, original_id: str) -> None:
        """Let the graph return one of its tensors.

        Args:
            tensor: the tensor.
            original_id: id of the tensor that it stands for.
        Raises:
            GraphError: the tensor is of another graph, or there is an output for that id.
        """
        read_a("add_output_tensor: tensor", tensor, Tensor)
        read_text("add_output_tensor: original_id", original_id)
        self._forget_undone()
        if original_id in self._outputs:
            raise GraphError(
                f"add_output_tensor: there is an output for {shown(original_id)}, got {shown(tensor)}, "
                "expected an id that has none"
            )
        with self.graph:
            graph_output(tensor)
        self._outputs[original_id] = tensor

    def reconnect_input(self, original_id: str, new: Tensor) -> None:
        """Bind an input to another tensor of the caller.

        Args:
            original_id: id of the tensor that it was bound to.
            new: the tensor.
        Raises:
            UnknownNameError: no input is bound to a tensor of that id.
        """
        read_text("reconnect_input: original_id", original_id)
        read_a("reconnect_input: new", new, Tensor)
        self._forget_undone()
        if original_id not in self._inputs:
            raise UnknownNameError(
                f"reconnect_input: no input for that id, got {shown(original_id)}, expected one of {list(self._inputs)}"
            )
        made = self._inputs.pop(original_id)
        self._inputs[new.id] = made
        self.args[made] = new

    def __contains__(self, value: Any) -> bool:
        """True if a tensor or id means a tensor of the graph, or one that an input or output of it stands for."""
        if isinstance(value, Tensor) and value in self.graph:
            return True
        self._forget_undone()
        id_ = value.id if isinstance(value, Tensor) else value
        return is_a(id_, str) and (id_ in self._inputs or id_ in self._outputs)
