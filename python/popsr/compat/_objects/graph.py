"""Graphs as ``graph._pb_graph``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from popsr._program.context import _context
from popsr._program.graph import Graph
from popsr._support.host.arguments import read_flag, read_index, read_text
from popsr.compat._objects.base import PopartObject, register_view, view_of
from popsr.compat._objects.identifiers import GraphId
from popsr.compat._objects.op import PopartOp, popart_op
from popsr.compat._objects.tensor import PopartTensor

__all__ = ["PopartGraph", "create_tensor_id", "creators", "pb_graph"]

_CREATE = ("createConnectedOp_", "createOp_")

creators: dict[str, Callable[..., Any]] = {}
"""Functions that make operators of the program's own, by the beginning of their names; see ``custom_ops``."""


class PopartGraph(PopartObject):
    """A graph by PopART's names.

    ``createConnectedOp_…(inputs, outputs, identifier, …, settings)`` makes an operator that ``popsr.compat.custom_op``
    registered, and ``createOp_…(identifier, …, settings)`` one whose tensors are connected later.
    """

    __slots__ = ("_graph",)
    _where = "graph._pb_graph"

    def __init__(self, graph: Graph) -> None:
        """``graph``: of popsr."""
        self._graph = graph

    @property
    def id(self) -> GraphId:
        """Its id; ``str(id)`` is the name."""
        return GraphId(self._graph.id)

    def get_ir(self) -> Any:
        """The program that it is in."""
        return view_of(self._graph.ir)

    def get_ops(self) -> list[PopartOp]:
        """Its ops, in the order in which they were made."""
        return [popart_op(op) for op in self._graph.ops]

    def get_op_schedule(self, require_optimal_schedule: bool = False) -> list[PopartOp]:
        """Its ops, in the order in which they run.

        Args:
            require_optimal_schedule: read and not used: there is one schedule.
        """
        read_flag("getOpSchedule: requireOptimalSchedule", require_optimal_schedule)
        return self.get_ops()

    def get_tensors(self) -> list[PopartTensor]:
        """Its tensors."""
        return [PopartTensor(t) for t in self._graph.tensors]

    def get_tensor_ids(self) -> list[str]:
        """Ids of its tensors."""
        return [t.id for t in self._graph.tensors]

    def get_tensor(self, tensor_id: str) -> PopartTensor:
        """The tensor of an id.

        Raises:
            UnknownNameError: there is none.
        """
        return PopartTensor(self._graph.get_tensor(read_text("getTensor: id", tensor_id)))

    def get_input_ids(self) -> list[str]:
        """Ids of its inputs."""
        return [t.id for t in self._graph.inputs]

    def get_output_ids(self) -> list[str]:
        """Ids of its outputs."""
        return [t.id for t in self._graph.outputs]

    def get_input_id(self, index: int) -> str:
        """Id of an input.

        Raises:
            OutOfRangeError: there is none of that number.
        """
        ids = self.get_input_ids()
        return ids[read_index("getInputId: index", index, len(ids))]

    def get_output_id(self, index: int) -> str:
        """Id of an output.

        Raises:
            OutOfRangeError: there is none of that number.
        """
        ids = self.get_output_ids()
        return ids[read_index("getOutputId: index", index, len(ids))]

    def has_input_id(self, tensor_id: str) -> bool:
        """True if an input has that id."""
        return read_text("hasInputId: id", tensor_id) in self.get_input_ids()

    def has_output_id(self, tensor_id: str) -> bool:
        """True if an output has that id."""
        return read_text("hasOutputId: id", tensor_id) in self.get_output_ids()

    def get_called_graphs(self) -> list[PopartGraph]:
        """Graphs that its ops run."""
        return [PopartGraph(graph) for graph in self._graph.called_graphs]

    def add_scope(self, name: str) -> str:
        """A name below the graph's."""
        text = read_text("addScope: name", name)
        return f"{self._graph.id}/{text}" if self._graph.id else text

    def remove_scope(self, tensor_id: str) -> str:
        """A tensor's id without the name of the graph."""
        return read_text("removeScope: id", tensor_id).removeprefix(f"{self._graph.id}/")

    def __getattr__(self, name: str) -> Any:
        """``createOp_…`` and ``createConnectedOp_…``.

        Raises:
            AttributeAccessError: another name; the message has the nearest one.
        """
        if name.startswith(_CREATE):
            return self._creator(name)
        raise self._unknown(name)

    def _creator(self, name: str) -> Callable[..., Any]:
        make = creators[next(start for start in _CREATE if name.startswith(start))]

        def create(*args: Any, **kwargs: Any) -> Any:
            return make(name, self._graph, args, kwargs)

        return create

    def __str__(self) -> str:
        return self._graph.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PopartGraph) and other._graph is self._graph

    def __hash__(self) -> int:
        return hash(self._graph)

    def __repr__(self) -> str:
        return repr(self._graph)


def pb_graph(graph: Graph) -> PopartGraph:
    """The graph by PopART's names."""
    return PopartGraph(graph)


def create_tensor_id(graph: Graph, name: str) -> str:
    """An id that no tensor of the graph has: graph, name scopes, name, and a number where that is taken."""
    wanted = pb_graph(graph).add_scope(_context.scoped(read_text("_create_tensor_id: name", name)))
    taken = {t.id for t in graph.tensors}
    number = graph.ir._core.num_tensors
    found = wanted
    while found in taken:
        found = f"{wanted}__t{number}"
        number += 1
    return found


register_view(Graph, PopartGraph)
