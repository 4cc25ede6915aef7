"""Layers: modules with the weights and the names of popxl_addons, and parallel layers.

Initial weights are drawn by NumPy's global generator. ``torch_mapping`` of a layer gives the data of a layer of
torch for its variables.
"""

from typing import TYPE_CHECKING

from popsr._support.lazy import names_only
from popsr._support.text.suggestions import unknown_attribute
from popsr.addons.layers.column_parallel_linear import ColumnParallelLinear
from popsr.addons.layers.conv import Conv2D
from popsr.addons.layers.embedding import Embedding
from popsr.addons.layers.group_norm import GroupNorm
from popsr.addons.layers.layer_norm import LayerNorm
from popsr.addons.layers.layer_norm_distributed import LayerNormDistributed
from popsr.addons.layers.linear import Linear
from popsr.addons.layers.linear_fp8 import LinearFP8
from popsr.addons.layers.linear_gq import LinearGQ
from popsr.addons.layers.parallel_attention import ParallelAttention
from popsr.addons.layers.parallel_cross_entropy import ParallelCrossEntropy
from popsr.addons.layers.parallel_embedding import ParallelEmbedding
from popsr.addons.layers.row_parallel_linear import RowParallelLinear

__all__ = [
    "ColumnParallelLinear",
    "Conv2D",
    "Embedding",
    "GroupNorm",
    "LayerNorm",
    "LayerNormDistributed",
    "Linear",
    "LinearFP8",
    "LinearGQ",
    "ParallelAttention",
    "ParallelCrossEntropy",
    "ParallelEmbedding",
    "RowParallelLinear",
]

if not TYPE_CHECKING:
    __getattr__ = unknown_attribute(__name__, __all__)

__dir__ = names_only(__all__)
