"""Collectives with the shapes of popxl_addons: results of gathers and scatters are flat.

Groups of every kind are accepted, of constant stride as well as of any assignment such as a transpose.
"""

from popsr._support.lazy import names_only
from popsr.addons.ops.replicated_strided_collectives.replicated_all_gather_strided import (
    replicated_all_gather_strided,
)
from popsr.addons.ops.replicated_strided_collectives.replicated_all_reduce_strided import (
    replicated_all_reduce_strided,
    replicated_all_reduce_strided_graph,
    replicated_all_reduce_strided_identical_grad_inputs,
    replicated_all_reduce_strided_identical_inputs,
)
from popsr.addons.ops.replicated_strided_collectives.replicated_reduce_scatter_strided import (
    replicated_reduce_scatter_strided,
)

__all__ = [
    "replicated_all_gather_strided",
    "replicated_all_reduce_strided",
    "replicated_all_reduce_strided_graph",
    "replicated_all_reduce_strided_identical_grad_inputs",
    "replicated_all_reduce_strided_identical_inputs",
    "replicated_reduce_scatter_strided",
]

__dir__ = names_only(__all__)
