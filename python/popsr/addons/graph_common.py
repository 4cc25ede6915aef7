"""Arguments that stand for a graph, or for gradient graphs of graphs."""

from popsr.addons.graph import CalledGraphsGradInfoLike, GradGraphInfoLike, GraphLike, read_grad_infos

__all__ = ["CalledGraphsGradInfoLike", "GradGraphInfoLike", "GraphLike", "read_grad_infos"]
