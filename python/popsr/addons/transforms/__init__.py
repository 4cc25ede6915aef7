"""Transforms of graphs with named arguments; ``repeat_graph`` is a module that holds the function."""

from typing import TYPE_CHECKING

from popsr._support.lazy import names_only
from popsr._support.text.suggestions import unknown_attribute
from popsr.addons.transforms import (
    available_memory_proportion,
    batch_serialisation,
    pipelining,
    recomputation,
    repeat_graph,
    use_fc_pass,
)
from popsr.addons.transforms.autodiff import autodiff, autodiff_with_accumulation, remap_grad_info
from popsr.addons.transforms.recomputation import add_recompute_inputs, recompute_graph

__all__ = [
    "add_recompute_inputs",
    "autodiff",
    "autodiff_with_accumulation",
    "available_memory_proportion",
    "batch_serialisation",
    "pipelining",
    "recomputation",
    "recompute_graph",
    "remap_grad_info",
    "repeat_graph",
    "use_fc_pass",
]

if not TYPE_CHECKING:
    __getattr__ = unknown_attribute(__name__, __all__)

__dir__ = names_only(__all__)
