"""Transforms of graphs with named arguments."""

from popsr.addons.transforms.autodiff import autodiff, autodiff_with_accumulation, remap_grad_info
from popsr.addons.transforms.recomputation import add_recompute_inputs, recompute_graph

__all__ = [
    "add_recompute_inputs",
    "autodiff",
    "autodiff_with_accumulation",
    "recompute_graph",
    "remap_grad_info",
]
