"""The ops: one function each, in files by family. Most append one op to the current graph and return its output."""

from popsr.ops import collectives, var_updates
from popsr.ops.cast import cast
from popsr.ops.conditional import conditional, conditional_with_info
from popsr.ops.control import CallSiteInfo, call, call_with_info, repeat, repeat_with_info
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
from popsr.ops.host_io import host_load, host_store, init, print_tensor
from popsr.ops.losses import nll_loss, nll_loss_with_softmax_grad
from popsr.ops.matmul import matmul
from popsr.ops.reductions import max, mean, softmax, sum
from popsr.ops.remote import remote_load, remote_load_, remote_store
from popsr.ops.replica_index import replica_index
from popsr.ops.shape import concat, detach, flatten, reshape, slice, split, squeeze, transpose
from popsr.ops.views import concat_, detach_, flatten_, reshape_, slice_, transpose_

__all__ = [
    "CallSiteInfo",
    "abs",
    "add",
    "add_",
    "call",
    "call_with_info",
    "cast",
    "collectives",
    "concat",
    "concat_",
    "conditional",
    "conditional_with_info",
    "detach",
    "detach_",
    "div",
    "exp",
    "exp_",
    "flatten",
    "flatten_",
    "gelu",
    "gelu_",
    "host_load",
    "host_store",
    "init",
    "log",
    "matmul",
    "max",
    "maximum",
    "mean",
    "mul",
    "negate",
    "nll_loss",
    "nll_loss_with_softmax_grad",
    "pow",
    "print_tensor",
    "relu",
    "relu_",
    "remote_load",
    "remote_load_",
    "remote_store",
    "repeat",
    "repeat_with_info",
    "replica_index",
    "reshape",
    "reshape_",
    "scaled_add",
    "scaled_add_",
    "slice",
    "slice_",
    "softmax",
    "split",
    "sqrt",
    "squeeze",
    "sub",
    "sum",
    "tanh",
    "transpose",
    "transpose_",
    "var_updates",
]
