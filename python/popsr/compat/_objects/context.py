"""The context as functions that make ops see it."""

from __future__ import annotations

from popsr._program.context import Context
from popsr._support.host.arguments import read_text
from popsr.compat._objects.identifiers import OpSettings

__all__ = ["op_settings"]


def op_settings(context: Context, name: str) -> OpSettings:
    """Settings of an op that will be made in the current graph.

    Args:
        context: the context.
        name: name of the op, below the active name scopes.
    Raises:
        StateError: no graph is entered.
        ArgumentTypeError: ``name`` is not a str.
    """
    graph = context.graph_of("_get_op_settings")
    settings = OpSettings(graph, context.scoped(read_text("_get_op_settings: name", name)))
    settings.vgraphId = context.ipu_id
    return settings
