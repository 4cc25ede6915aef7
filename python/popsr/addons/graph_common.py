"""Arguments that stand for a graph, or for gradient graphs of graphs."""

from popsr._support.lazy import names_only
from popsr.addons.graph import CalledGraphsGradInfoLike, GradGraphInfoLike, GraphLike, read_grad_infos

__all__ = ["CalledGraphsGradInfoLike", "GradGraphInfoLike", "GraphLike", "read_grad_infos"]

__dir__ = names_only(__all__)
