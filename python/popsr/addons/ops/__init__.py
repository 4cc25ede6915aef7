"""Ops made of others: losses of sharded classes, collectives of tensor parallelism, scales of float8, and more."""

from typing import TYPE_CHECKING

from popsr._support.lazy import names_only
from popsr._support.text.suggestions import unknown_attribute
from popsr.addons.ops import replicated_strided_collectives
from popsr.addons.ops.cross_entropy import cross_entropy, cross_entropy_with_grad
from popsr.addons.ops.cross_entropy_sharded_loss import cross_entropy_sharded_loss
from popsr.addons.ops.cross_entropy_sharded_wr_loss import cross_entropy_sharded_wr_loss
from popsr.addons.ops.fp8_amax_scale import fp8_amax_scale
from popsr.addons.ops.fp8_mse_scale import fp8_mse_scale
from popsr.addons.ops.grad_reduce_square_add import grad_reduce_square_add
from popsr.addons.ops.group_quantize_decompress import (
    group_quantize_compress_numpy,
    group_quantize_decompress,
    group_quantize_decompress_numpy,
)
from popsr.addons.ops.layer_norm_distributed import layer_norm_distributed
from popsr.addons.ops.linear_layout import linear_layout
from popsr.addons.ops.replicated_all_reduce_TP import (
    replicated_all_reduce,
    replicated_all_reduce_identical_grad_inputs,
    replicated_all_reduce_identical_inputs,
)
from popsr.addons.ops.replicated_strided_collectives import (
    replicated_all_gather_strided,
    replicated_all_reduce_strided,
    replicated_all_reduce_strided_graph,
    replicated_all_reduce_strided_identical_grad_inputs,
    replicated_all_reduce_strided_identical_inputs,
    replicated_reduce_scatter_strided,
)
from popsr.addons.ops.rotary_pos_embed import rotary_pos_embed, trig_table_constants, trig_tables
from popsr.addons.ops.static_sparse_ops import dense_const_sparse_matmul, random_sparse
from popsr.addons.ops.streams import host_load, host_store

__all__ = [
    "cross_entropy",
    "cross_entropy_sharded_loss",
    "cross_entropy_sharded_wr_loss",
    "cross_entropy_with_grad",
    "dense_const_sparse_matmul",
    "fp8_amax_scale",
    "fp8_mse_scale",
    "grad_reduce_square_add",
    "group_quantize_compress_numpy",
    "group_quantize_decompress",
    "group_quantize_decompress_numpy",
    "host_load",
    "host_store",
    "layer_norm_distributed",
    "linear_layout",
    "random_sparse",
    "replicated_all_gather_strided",
    "replicated_all_reduce",
    "replicated_all_reduce_identical_grad_inputs",
    "replicated_all_reduce_identical_inputs",
    "replicated_all_reduce_strided",
    "replicated_all_reduce_strided_graph",
    "replicated_all_reduce_strided_identical_grad_inputs",
    "replicated_all_reduce_strided_identical_inputs",
    "replicated_reduce_scatter_strided",
    "replicated_strided_collectives",
    "rotary_pos_embed",
    "trig_table_constants",
    "trig_tables",
]

if not TYPE_CHECKING:
    __getattr__ = unknown_attribute(__name__, __all__)

__dir__ = names_only(__all__)
