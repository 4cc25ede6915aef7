"""PopART's transforms of programs that programs for PopXL name; popsr's own are in :mod:`popsr.transforms`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from popsr import _core
from popsr._program.building.transaction import run
from popsr._support.host.arguments import read_a
from popsr._support.text.suggestions import unknown_attribute
from popsr.compat._objects.members import PopartGraph

__all__ = ["MergeExchange", "Prune", "Transform"]


class Transform:
    """Base of transforms: they are applied to a graph."""

    def apply(self, graph: Any) -> bool:
        """Change a graph as the transform says.

        Returns:
            True.
        Raises:
            ArgumentTypeError: it is not a graph.
        """
        self._change(read_a(f"{type(self).__name__}.apply: graph", graph, PopartGraph))
        return True

    def _change(self, graph: PopartGraph) -> None:
        """By default, not at all."""


class Prune(Transform):
    """Removes ops that nothing uses: here sessions do not run them, so that the graph stays as it is."""


class MergeExchange(Transform):
    """Merges loads and stores that do not depend on each other, as :func:`popsr.transforms.merge_exchange`."""

    def _change(self, graph: PopartGraph) -> None:
        run(_core.merge_exchange_since, graph._graph.ir._core, graph._graph._id, 0)


if not TYPE_CHECKING:
    __getattr__ = unknown_attribute(__name__, __all__)
