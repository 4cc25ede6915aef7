"""The ops: one function each, in files by family. Most append one op to the current graph and return its output."""

from typing import TYPE_CHECKING

from popsr._calls import explain_calls
from popsr._suggestions import unknown_attribute
from popsr.ops import collectives, var_updates
from popsr.ops import utils as utils
from popsr.ops.activations import geluerf, geluerf_, sigmoid, swish, swish_
from popsr.ops.batch_norm import batch_norm_inference
from popsr.ops.cast import cast, pow2scale_cast_from_fp8, pow2scale_cast_to_fp8
from popsr.ops.code_copy import remote_code_load
from popsr.ops.comparisons import (
    equal,
    greater,
    isfinite,
    isinf,
    isnan,
    logical_and,
    logical_not,
    logical_or,
    where,
)
from popsr.ops.conditional import conditional, conditional_with_info
from popsr.ops.control import CallSiteInfo, call, call_with_info, repeat, repeat_with_info
from popsr.ops.conv import (
    PadType,
    conv,
    conv_pow2scaled,
    conv_transpose,
    conv_transpose_pow2scaled,
    multi_conv_options,
)
from popsr.ops.dropout import dropout
from popsr.ops.dynamic import dynamic_slice, dynamic_update, dynamic_update_, subsample
from popsr.ops.elementwise import (
    abs,
    add,
    add_,
    div,
    exp,
    exp_,
    gelu,
    gelu_,
    log,
    maximum,
    mul,
    negate,
    pow,
    relu,
    relu_,
    scaled_add,
    scaled_add_,
    sqrt,
    sub,
    tanh,
)
from popsr.ops.functions import (
    ceil,
    clamp,
    clip,
    cos,
    floor,
    fmod,
    identity,
    increment_mod,
    increment_mod_,
    log2,
    rename,
    rsqrt,
    sign,
    sin,
)
from popsr.ops.group_norm import group_norm, layer_norm
from popsr.ops.host_io import host_load, host_store, init, print_tensor
from popsr.ops.indexing import (
    gather,
    groupedgather,
    histogram,
    onehot,
    scatter,
    tied_gather,
)
from popsr.ops.interpolate import interpolate
from popsr.ops.io_tile_copy import io_tile_copy
from popsr.ops.ipu_copy import ipu_copy
from popsr.ops.lamb import lamb_square
from popsr.ops.losses import nll_loss, nll_loss_with_softmax_grad
from popsr.ops.matmul import matmul, matmul_pow2scaled
from popsr.ops.order import argmax, argmin, cumsum, median, topk
from popsr.ops.pool import average_pool, max_pool
from popsr.ops.random import random_normal, random_uniform
from popsr.ops.random_seed import create_random_seed, split_random_seed
from popsr.ops.reductions import (
    l1,
    l2,
    log_softmax,
    logsum,
    logsumexp,
    max,
    mean,
    min,
    prod,
    softmax,
    sum,
    sumsquare,
)
from popsr.ops.remote import remote_load, remote_load_, remote_store
from popsr.ops.replica_index import replica_index
from popsr.ops.roialign import roi_align
from popsr.ops.scatter_reduce import grouped_scatter_reduce, scatter_reduce
from popsr.ops.shape import concat, detach, flatten, reshape, slice, split, squeeze, transpose
from popsr.ops.shaped_dropout import shaped_dropout
from popsr.ops.views import concat_, detach_, flatten_, reshape_, slice_, transpose_

__all__ = [
    "CallSiteInfo",
    "PadType",
    "abs",
    "add",
    "add_",
    "argmax",
    "argmin",
    "average_pool",
    "batch_norm_inference",
    "call",
    "call_with_info",
    "cast",
    "ceil",
    "clamp",
    "clip",
    "collectives",
    "concat",
    "concat_",
    "conditional",
    "conditional_with_info",
    "conv",
    "conv_pow2scaled",
    "conv_transpose",
    "conv_transpose_pow2scaled",
    "cos",
    "create_random_seed",
    "cumsum",
    "detach",
    "detach_",
    "div",
    "dropout",
    "dynamic_slice",
    "dynamic_update",
    "dynamic_update_",
    "equal",
    "exp",
    "exp_",
    "flatten",
    "flatten_",
    "floor",
    "fmod",
    "gather",
    "gelu",
    "gelu_",
    "geluerf",
    "geluerf_",
    "greater",
    "group_norm",
    "grouped_scatter_reduce",
    "groupedgather",
    "histogram",
    "host_load",
    "host_store",
    "identity",
    "increment_mod",
    "increment_mod_",
    "init",
    "interpolate",
    "io_tile_copy",
    "ipu_copy",
    "isfinite",
    "isinf",
    "isnan",
    "l1",
    "l2",
    "lamb_square",
    "layer_norm",
    "log",
    "log2",
    "log_softmax",
    "logical_and",
    "logical_not",
    "logical_or",
    "logsum",
    "logsumexp",
    "matmul",
    "matmul_pow2scaled",
    "max",
    "max_pool",
    "maximum",
    "mean",
    "median",
    "min",
    "mul",
    "multi_conv_options",
    "negate",
    "nll_loss",
    "nll_loss_with_softmax_grad",
    "onehot",
    "pow",
    "pow2scale_cast_from_fp8",
    "pow2scale_cast_to_fp8",
    "print_tensor",
    "prod",
    "random_normal",
    "random_uniform",
    "relu",
    "relu_",
    "remote_code_load",
    "remote_load",
    "remote_load_",
    "remote_store",
    "rename",
    "repeat",
    "repeat_with_info",
    "replica_index",
    "reshape",
    "reshape_",
    "roi_align",
    "rsqrt",
    "scaled_add",
    "scaled_add_",
    "scatter",
    "scatter_reduce",
    "shaped_dropout",
    "sigmoid",
    "sign",
    "sin",
    "slice",
    "slice_",
    "softmax",
    "split",
    "split_random_seed",
    "sqrt",
    "squeeze",
    "sub",
    "subsample",
    "sum",
    "sumsquare",
    "swish",
    "swish_",
    "tanh",
    "tied_gather",
    "topk",
    "transpose",
    "transpose_",
    "var_updates",
    "where",
]

if not TYPE_CHECKING:
    __getattr__ = unknown_attribute(__name__, __all__)
    explain_calls(globals(), __all__)
