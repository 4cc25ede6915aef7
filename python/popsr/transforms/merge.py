"""Several exchanges as one op."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import overload

from popsr import _core
from popsr._program.building.transaction import transactional
from popsr._program.context import _context, in_sequence, io_tiles
from popsr._program.graph import Graph
from popsr._program.ir import Ir
from popsr._support.text.entry_points import public, public_call
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, StateError

__all__ = ["io_tile_exchange", "merge_collectives", "merge_exchange"]


@public_call
@transactional
def merge_collectives(ir: Ir) -> int:
    """Merge collectives that do not depend on each other, in all graphs: one op and one pass for several tensors.

    All-reduces (also in place) and reduce-scatters of equal reduction and group are merged, and all-gathers of equal
    group. Nothing moves past an op that it must follow, through data or in_sequence, and nothing else changes: every
    value keeps its bits, random numbers, partition and location. See ``Op.parts``. Run again it changes nothing.

    Args:
        ir: the program.
    Returns:
        By how many ops it got shorter.
    Raises:
        GraphError: the order of a write in place and another use of the same tensor is not fixed, and
            ``ir.options.enable_inplace_ambiguity_checking`` is set.
    """
    _check_ir("merge_collectives", ir)
    ir._check_order()
    return _core.merge_collectives(ir._core)


@overload
def merge_exchange(*, ir: Ir) -> int: ...
@overload
def merge_exchange(*, ir: None = None) -> contextlib.AbstractContextManager[None]: ...
@public_call
@transactional
def merge_exchange(*, ir: Ir | None = None) -> int | contextlib.AbstractContextManager[None]:
    """Merge loads and stores of streams and remote buffers that do not depend on each other.

    With a program: in all its graphs, as ``merge_collectives`` does. Without: a context manager, as in PopXL, that
    merges those made in its block in the graph that is current.

    Args:
        ir: the program.
    Returns:
        By how many ops the program got shorter; or the context manager.
    Raises:
        GraphError: the order of a write in place and another use of the same tensor is not fixed, and
            ``ir.options.enable_inplace_ambiguity_checking`` is set.
    """
    if ir is None:
        return _merged_block()
    _check_ir("merge_exchange", ir)
    ir._check_order()
    return _core.merge_exchange(ir._core)


@public
@contextlib.contextmanager
def io_tile_exchange(verify_overlap: bool = True) -> Iterator[None]:
    """``merge_exchange()`` inside ``io_tiles()`` and ``in_sequence(False)``.

    Args:
        verify_overlap: refuse a block of which more than one op is left.
    Raises:
        RuntimeError: there is more than one.
    """
    graph = _context.graph
    first = len(graph.ir._core.graph_ops(graph._id))
    with io_tiles(), in_sequence(False):
        yield
    _merge_tiles(graph, first, verify_overlap)


@transactional
def _merge_tiles(graph: Graph, first: int, verify_overlap: bool) -> None:
    _core.merge_exchange_since(graph.ir._core, graph._id, first)
    left = len(graph.ir._core.graph_ops(graph._id)) - first
    if verify_overlap and left > 1:
        raise StateError(
            f"io_tile_exchange: ops do not become one exchange, got {left} ops, expected one: loads and stores that "
            "do not depend on each other, and no other op"
        )


@contextlib.contextmanager
def _merged_block() -> Iterator[None]:
    graph = _context.graph
    first = len(graph.ir._core.graph_ops(graph._id))
    yield
    _core.merge_exchange_since(graph.ir._core, graph._id, first)


def _check_ir(where: str, ir: Ir) -> None:
    if not isinstance(ir, Ir):
        raise ArgumentTypeError(f"{where}: ir is not an Ir, got {shown(ir)}")
