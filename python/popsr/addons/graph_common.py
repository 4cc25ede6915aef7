"""What functions take where they need a graph, or gradient graphs of graphs."""

from popsr._lazy import names_only
from popsr.addons.graph import CalledGraphsGradInfoLike, GradGraphInfoLike, GraphLike, read_grad_infos

__all__ = ["CalledGraphsGradInfoLike", "GradGraphInfoLike", "GraphLike", "read_grad_infos"]

__dir__ = names_only(__all__)
