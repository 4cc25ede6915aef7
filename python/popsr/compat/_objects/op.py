"""Ops as ``graph._pb_graph.getOps()`` gives them."""

from __future__ import annotations

from typing import Any

from popsr._program.op import Op
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import is_a, read_a, read_index
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.compat._objects import op_classes
from popsr.compat._objects.base import CallableText, register_view, view_of
from popsr.compat._objects.identifiers import DebugInfo, GraphId, OperatorIdentifier, OpSettings
from popsr.compat._objects.op_classes import OpView, class_of, op_type
from popsr.compat._objects.tensor import PopartTensor
from popsr.errors import ArgumentTypeError, UnsupportedError
from popsr.replicas import ReplicaGrouping

__all__ = ["CustomOp", "PopartOp", "op_created", "popart_op", "type_of_op"]


@public
class PopartOp(op_classes.Op, OpView):
    """An op of a graph by PopART's names. ``type(op)`` is the class of its kind below ``_ir.op``."""

    __slots__ = ()
    _where = "op"
    _op: Op

    def __init__(self, op: Op) -> None:
        """``op``: one of ``graph.ops``."""
        if not is_a(op, Op) or op.kind not in (type(self).kinds or ()):
            raise ArgumentTypeError(
                f"{type(self).__name__}: cannot be constructed, got {shown(op)}, expected the popxl function that "
                "makes the op"
            )
        self._op = op

    @property
    def op_type(self) -> CallableText:
        """PopART's operator type: "MatMul", "Sub"."""
        return CallableText(op_type(self._op.kind))

    @property
    def kind(self) -> str:
        """Name of its definition, as in ``popsr.ops``."""
        return self._op.kind

    @property
    def id(self) -> int:
        """Number of the op in the program."""
        return self._op.id

    @property
    def name(self) -> CallableText:
        """Name of its first output, else its kind."""
        return CallableText(self._op.name)

    def __str__(self) -> str:
        return f"{self.id} ({self.op_type})"

    def get_graph(self) -> Any:
        """The graph that it is in."""
        return view_of(self._op._ir._graph(self._op._ir._core.op_graph(self._op.id)))

    def get_ir(self) -> Any:
        """The program that it is in."""
        return self.get_graph().get_ir()

    def get_inputs(self) -> list[PopartTensor]:
        """Its inputs, without optional ones that are absent."""
        return [PopartTensor(t) for t in self._op.inputs if t is not None]

    def get_outputs(self) -> list[PopartTensor]:
        """Its outputs."""
        return [PopartTensor(t) for t in self._op.outputs]

    def has_input(self, index: int) -> bool:
        """True if there is an input of that number."""
        return _has(self._op.inputs, read_index("hasInput: index", index, 2**31))

    def has_output(self, index: int) -> bool:
        """True if there is an output of that number."""
        return _has(self._op.outputs, read_index("hasOutput: index", index, 2**31))

    def in_tensor(self, index: int) -> PopartTensor:
        """An input.

        Raises:
            OutOfRangeError: there is none of that number.
            UnsupportedError: it is optional and absent.
        """
        inputs = self._op.inputs
        found = inputs[read_index("inTensor: index", index, len(inputs))]
        if found is None:
            raise UnsupportedError(
                f"inTensor: an optional input is absent, got index {index} of {self}, "
                "expected an index for which hasInput is true"
            )
        return PopartTensor(found)

    def out_tensor(self, index: int) -> PopartTensor:
        """An output.

        Raises:
            OutOfRangeError: there is none of that number.
        """
        outputs = self._op.outputs
        return PopartTensor(outputs[read_index("outTensor: index", index, len(outputs))])

    def in_id(self, index: int) -> str:
        """Id of an input; errors as ``inTensor``."""
        return self.in_tensor(index).id

    def out_id(self, index: int) -> str:
        """Id of an output; errors as ``outTensor``."""
        return self.out_tensor(index).id

    def get_called_graphs(self) -> list[Any]:
        """Graphs that it runs."""
        return [view_of(graph) for graph in self._op.called_graphs]

    def get_called_graph(self) -> Any:
        """The graph that a call or loop runs.

        Raises:
            UnsupportedError: it runs none.
        """
        graphs = self.get_called_graphs()
        if not graphs:
            raise UnsupportedError(
                f"getCalledGraph: the op runs no graph, got {self}, expected a call or loop"
            )
        return graphs[0]

    def get_called_graph_ids(self) -> list[GraphId]:
        """Ids of the graphs that it runs."""
        return [GraphId(graph.id) for graph in self._op.called_graphs]

    def get_debug_info(self) -> DebugInfo:
        """Debug name."""
        return DebugInfo(self._op)

    def get_settings(self) -> OpSettings:
        """Name, graph and place."""
        settings = OpSettings(self._op._ir._graph(self._op._ir._core.op_graph(self._op.id)), self._op.name)
        settings.vgraphId, settings.tileSet = self._op.ipu, self._op.tile_set
        return settings

    @property
    def settings(self) -> OpSettings:
        """Name, graph and place."""
        return self.get_settings()

    def has_virtual_graph_id(self) -> bool:
        """True: each op is placed on a device of the replica."""
        return True

    def get_virtual_graph_id(self) -> int:
        """Device of the replica."""
        return self._op.ipu

    def is_outlineable(self) -> bool:
        """True: any op can move into a graph that a call or loop runs."""
        return True

    def get_replica_grouping(self) -> ReplicaGrouping:
        """The groups that a collective works in.

        Raises:
            UnsupportedError: it is not a collective.
        """
        attributes = self._op.attributes
        if "group" not in attributes:
            raise UnsupportedError(
                f"getReplicaGrouping: the op has no groups, got {self}, expected a collective"
            )
        grouping: ReplicaGrouping | None = attributes["group"]
        return self._op._ir.replica_grouping() if grouping is None else grouping

    def get_trip_count_value(self) -> int:
        """Trip count of a loop.

        Raises:
            UnsupportedError: it is not a loop.
        """
        if self._op.kind != "repeat":
            raise UnsupportedError(f"getTripCountValue: the op is not a loop, got {self}")
        return int(self._op.attributes["count"])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PopartOp) and self._op == other._op

    def __hash__(self) -> int:
        return hash(self._op)

    def __repr__(self) -> str:
        return repr(self._op)


def _has(tensors: tuple[Tensor | None, ...], index: int) -> bool:
    return index < len(tensors) and tensors[index] is not None


class CustomOp(PopartOp):
    """The call that stands for an operator of the program's own; see ``popsr.compat.custom_op``."""

    __slots__ = ()
    kinds = frozenset({"call"})

    @property
    def opid(self) -> OperatorIdentifier:
        """The operator's identifier."""
        identifier: OperatorIdentifier = self._op._ir._custom_ops[self._op.id]
        return identifier

    @property
    def op_type(self) -> CallableText:
        """Name of the operator."""
        return CallableText(self.opid.type)


def popart_op(op: Op) -> PopartOp:
    """An op by PopART's names, of the class of its kind."""
    cls = CustomOp if op.id in op._ir._custom_ops else class_of(op.kind)
    made: PopartOp = cls(op)
    return made


def type_of_op(op: Op) -> CallableText:
    """PopART's operator type of an op of ``graph.ops``."""
    return popart_op(op).op_type


def op_created(context: object, op: Any) -> None:
    """Called by PopXL after it made an op. Hooks ran when the op was made, so this only reads its argument.

    Raises:
        ArgumentTypeError: it is not an op.
    """
    del context
    read_a("_op_created: op", op, op_classes.Op)


op_classes.bases["made"] = PopartOp
register_view(Op, popart_op)
