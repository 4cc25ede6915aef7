"""Copies of graphs' code between memories; nothing is copied here, so they add nothing to the program."""

from __future__ import annotations

from typing import Literal, get_args

from popsr._program.context import _context
from popsr._program.graph import Graph
from popsr._support.host.arguments import is_a, read_choice
from popsr._support.text.entry_points import public_call
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError, GraphError, UnsupportedError

__all__ = ["remote_code_load"]

CODE_LOCATION = Literal["executable", "compute_buffer", "io_buffer"]


@public_call
def remote_code_load(graph: Graph, destination: CODE_LOCATION) -> None:
    """Load the code of a graph before it is called; there is nothing to load, so nothing is added to the program.

    Args:
        graph: the graph; not the current one.
        destination: "executable".
    Raises:
        ValueError: ``graph`` is the current graph, or of another Ir; an unknown destination.
        NotImplementedError: another destination.
    """
    _check("remote_code_load", graph, destination)


def code_copy(graph: Graph, source: CODE_LOCATION, destination: CODE_LOCATION) -> None:
    """Copy the code of a graph from one memory to another; nothing is added to the program.

    Args:
        graph: the graph; not the current one.
        source: where its code is.
        destination: "executable".
    Raises:
        ValueError: ``graph`` is the current graph, or of another Ir; an unknown source or destination.
        NotImplementedError: another destination.
    """
    read_choice("code_copy", "source", source, get_args(CODE_LOCATION))
    _check("code_copy", graph, destination)


def _check(where: str, graph: Graph, destination: CODE_LOCATION) -> None:
    current = _context.graph_of(where)
    if not is_a(graph, Graph):
        raise ArgumentTypeError(f"{where}: graph is not a Graph, got {shown(graph)}")
    if graph.ir is not current.ir:
        raise GraphError(
            f"{where}: graph of another Ir, got {shown(graph)}, expected one of {shown(current.ir)}"
        )
    if graph is current:
        raise AttributeValueError(
            f"{where}: a graph loads its own code, got {shown(graph)}, expected another graph"
        )
    read_choice(where, "destination", destination, get_args(CODE_LOCATION))
    if destination != "executable":
        raise UnsupportedError(
            f"{where}: destination is not supported, got {shown(destination)}, expected 'executable'"
        )
