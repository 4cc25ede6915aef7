"""Programs as ``ir._pb_ir``."""

from __future__ import annotations

import logging
from typing import Any

from popsr._program.ir import Ir
from popsr._program.options.options import Options
from popsr._support.host.arguments import read_a, read_text
from popsr._support.text.shown import shown
from popsr.compat._objects.base import PopartObject, register_view
from popsr.compat._objects.data_flow import DataFlow, Patterns
from popsr.compat._objects.graph import PopartGraph
from popsr.compat._objects.identifiers import GraphId
from popsr.compat._objects.op import PopartOp
from popsr.errors import UnknownNameError

__all__ = ["PopartIr", "pb_ir"]

_logger = logging.getLogger("popsr")


class PopartIr(PopartObject):
    """A program by PopART's names."""

    __slots__ = ("_ir",)
    _where = "ir._pb_ir"

    def __init__(self, ir: Ir | None = None) -> None:
        """``ir``: of popsr. Default: a new one."""
        self._ir = Ir() if ir is None else read_a("Ir: ir", ir, Ir)

    @property
    def id(self) -> int:
        """Number of the program, unique in the process."""
        return self._ir.id

    def get_id(self) -> int:
        """Number of the program, unique in the process."""
        return self._ir.id

    def get_session_options(self) -> Options:
        """The same object as ``ir.options``."""
        return self._ir.options

    def get_main_graph(self) -> PopartGraph:
        """The graph that a session runs."""
        return PopartGraph(self._ir.main_graph)

    def get_all_graphs(self) -> list[PopartGraph]:
        """All graphs, the main graph first."""
        return [PopartGraph(self._ir._graph(number)) for number in range(self._ir._core.num_graphs)]

    def get_graph_schedule(self) -> list[PopartGraph]:
        """The main graph and all that it runs, each after the graph that runs it first."""
        found = [self._ir.main_graph]
        for graph in found:  # grows meanwhile
            found += [each for each in graph.called_graphs if each not in found]
        return [PopartGraph(graph) for graph in found]

    def get_graph(self, graph_id: GraphId | str) -> PopartGraph:
        """The graph of an id.

        Raises:
            UnknownNameError: there is none.
        """
        for graph in self.get_all_graphs():
            if graph.id == _read_id("getGraph", graph_id):
                return graph
        raise UnknownNameError(
            f"getGraph: no graph has that id, got {shown(str(graph_id))}, expected an id of getAllGraphs()"
        )

    def has_graph(self, graph_id: GraphId | str) -> bool:
        """True if a graph has that id."""
        wanted = _read_id("hasGraph", graph_id)
        return any(graph.id == wanted for graph in self.get_all_graphs())

    def get_all_ops(self) -> list[PopartOp]:
        """The ops of all graphs."""
        return [op for graph in self.get_all_graphs() for op in graph.get_ops()]

    def get_op_schedule(self, require_optimal_schedule: bool = False) -> list[PopartOp]:
        """The ops of the main graph and of all that it runs, graph by graph, in the order in which they run.

        Args:
            require_optimal_schedule: read and not used: there is one schedule.
        """
        return [
            op
            for graph in self.get_graph_schedule()
            for op in graph.get_op_schedule(require_optimal_schedule)
        ]

    def log_ir(self) -> None:
        """Log the program as text, to the logger ``popsr`` at level INFO."""
        _logger.info("%s", self._ir)

    def set_patterns(self, patterns: Any) -> None:
        """Read PopART's patterns: a program runs as it was written, so none of them applies.

        Raises:
            ArgumentTypeError: they are not Patterns.
        """
        read_a("setPatterns: patterns", patterns, Patterns)

    def set_data_flow(self, data_flow: Any) -> None:
        """Read PopART's description of a run: how often streams move is ``ir.num_host_transfers``.

        Raises:
            ArgumentTypeError: it is not a DataFlow.
        """
        read_a("setDataFlow: dataFlow", data_flow, DataFlow)

    def apply_pre_alias_patterns(self, graph: PopartGraph) -> None:
        """Read a graph: no op of popsr needs to be replaced before it runs.

        Raises:
            ArgumentTypeError: it is not a graph.
            UnknownNameError: it is of another program.
        """
        self.get_graph(read_a("applyPreAliasPatterns: graph", graph, PopartGraph).id)

    def update_vertices(self) -> None:
        """Do nothing: ops have no state beside the program that would have to be updated."""

    def remove_isolated_graphs(self) -> None:
        """Do nothing: graphs that nobody calls are not compiled."""

    def remove_isolated_tensors(self) -> None:
        """Do nothing: tensors that no op uses are not computed."""

    def dot_checkpoint(self, check: str) -> None:
        """As ``ir.dot_checkpoint``."""
        self._ir.dot_checkpoint(read_text("dotCheckpoint: check", check))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PopartIr) and other._ir is self._ir

    def __hash__(self) -> int:
        return hash(self._ir)

    def __str__(self) -> str:
        return str(self._ir)

    def __repr__(self) -> str:
        return repr(self._ir)


def _read_id(where: str, graph_id: GraphId | str) -> GraphId:
    if isinstance(graph_id, GraphId):
        return graph_id
    return GraphId(read_text(f"{where}: id", graph_id))


def pb_ir(ir: Ir) -> PopartIr:
    """The program by PopART's names."""
    return PopartIr(ir)


register_view(Ir, PopartIr)
