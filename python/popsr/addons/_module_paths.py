"""Paths of popxl_addons that are no files here.

Ops that have a folder there, as ``popsr.addons.ops.linear_layout.linear_layout``, and ``popsr.addons.fp8_utils``, which
is ``popsr.fp8_utils``.
"""

from __future__ import annotations

from collections.abc import Mapping

from popsr import fp8_utils

__all__ = ["MODULE_PATHS"]

_OPS = {
    "cross_entropy_sharded_loss": "cross_entropy_sharded_loss",
    "cross_entropy_sharded_wr_loss": "cross_entropy_sharded_wr_loss handle_ipus",
    "fp8_mse_scale": "CandidateConfig fp8_mse_scale",
    "grad_reduce_square_add": "grad_reduce_square_add",
    "group_quantize_decompress": "group_quantize_compress_numpy group_quantize_decompress "
    "group_quantize_decompress_numpy",
    "layer_norm_distributed": "layer_norm_distributed",
    "linear_layout": "linear_layout",
    "replicated_all_reduce_TP": "replicated_all_reduce replicated_all_reduce_identical_grad_inputs "
    "replicated_all_reduce_identical_inputs",
    "rotary_pos_embed": "rotary_pos_embed trig_table_constants trig_tables",
}

# As popsr's own table: a path, the module that holds its names, and the names.
MODULE_PATHS: Mapping[str, Mapping[str, str]] = {
    "addons.fp8_utils": {"fp8_utils": " ".join(fp8_utils.__all__)},
    **{f"addons.ops.{name}.{name}": {f"addons.ops.{name}": names} for name, names in _OPS.items()},
}
