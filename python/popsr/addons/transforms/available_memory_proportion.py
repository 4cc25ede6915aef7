"""Share of each device's memory that products may take: a hint for hardware, without effect here."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Real

from popsr._program.graph import Graph
from popsr._program.ir import Ir
from popsr._support.host.arguments import is_a, read_ints
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError

__all__ = ["set_available_memory_proportion_by_ipu", "set_graph_available_memory_proportion_by_ipu"]


@public
def set_available_memory_proportion_by_ipu(ir: Ir, proportions: Iterable[float]) -> None:
    """Accepted for programs of PopXL; has no effect.

    Args:
        ir: a program.
        proportions: a number from 0 to 1 for each IPU.
    Raises:
        ArgumentTypeError: ``ir`` is not an Ir, or ``proportions`` are not numbers.
        AttributeValueError: a number outside that range.
    """
    where = "set_available_memory_proportion_by_ipu"
    if not is_a(ir, Ir):
        raise ArgumentTypeError(f"{where}: ir is not an Ir, got {shown(ir)}")
    _check(where, proportions)


@public
def set_graph_available_memory_proportion_by_ipu(graph: Graph, proportions: Iterable[float]) -> None:
    """Accepted for programs of PopXL; has no effect.

    Args:
        graph: a graph.
        proportions: a number from 0 to 1 for each IPU.
    Raises:
        ArgumentTypeError: ``graph`` is not a Graph, or ``proportions`` are not numbers.
        AttributeValueError: a number outside that range.
    """
    where = "set_graph_available_memory_proportion_by_ipu"
    if not is_a(graph, Graph):
        raise ArgumentTypeError(f"{where}: graph is not a Graph, got {shown(graph)}")
    _check(where, proportions)


def _check(where: str, proportions: Iterable[float]) -> None:
    for each in read_ints(where, "proportions", proportions, kind="floats"):
        if not is_a(each, Real) or is_a(each, bool):
            raise ArgumentTypeError(f"{where}: a proportion is not a number, got {shown(each)}")
        if not 0 <= each <= 1:
            raise AttributeValueError(
                f"{where}: a proportion is out of range, got {shown(each)}, expected 0 to 1"
            )
