"""What functions take where they need a graph, or gradient graphs of graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Union

from popsr._host.arguments import read_mapping
from popsr._lazy import names_only
from popsr._text.shown import shown
from popsr.errors import ArgumentTypeError
from popsr.graph import Graph
from popsr.transforms import GradGraphInfo

if TYPE_CHECKING:
    from popsr.addons.graph import GraphWithNamedArgs

__all__ = ["CalledGraphsGradInfoLike", "GradGraphInfoLike", "GraphLike", "read_grad_infos"]

GraphLike = Union[Graph, "GraphWithNamedArgs"]
GradGraphInfoLike = Union[GradGraphInfo, "GraphWithNamedArgs"]
CalledGraphsGradInfoLike = (
    Mapping[GraphLike, GradGraphInfoLike] | Mapping[Graph, GradGraphInfo] | Mapping[Graph, GradGraphInfoLike]
)


def read_grad_infos(where: str, infos: Any) -> dict[Graph, GradGraphInfo]:
    """Gradient infos by graph, from a mapping whose keys and values may be graphs with names."""
    return dict(_grad_infos(where, read_mapping(where, "called_graphs_grad_info", infos)))


def _grad_infos(where: str, infos: Mapping[Any, Any]) -> Iterator[tuple[Graph, GradGraphInfo]]:
    from popsr.addons.graph import GraphWithNamedArgs

    for key, value in infos.items():
        graph = key.graph if isinstance(key, GraphWithNamedArgs) else key
        info = value.grad_graph_info if isinstance(value, GraphWithNamedArgs) else value
        if not isinstance(graph, Graph) or not isinstance(info, GradGraphInfo):
            raise ArgumentTypeError(
                f"{where}: called_graphs_grad_info has no graph and GradGraphInfo, got {shown(key)}: {shown(value)}"
            )
        yield graph, info


__dir__ = names_only(__all__)
