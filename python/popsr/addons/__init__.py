"""Modules, named state and transforms for programs, with the names of popxl_addons.

A :class:`Module` is a graph with state; ``create_graph`` returns factories of its variables and the graph, with names
for the inputs that stand for them. ``docs/differences.md`` says where popsr does otherwise. ``ops`` and ``transforms``
are packages, ``layers`` and ``optimizers`` too, which are not imported here.
"""

from typing import TYPE_CHECKING

from popsr import fp8_utils
from popsr._support.lazy import lazy_attributes, names_only
from popsr._support.text.entry_points import public
from popsr._support.text.suggestions import unknown_attribute
from popsr.addons import (
    array_munging,
    debugging,
    dot_tree,
    graph,
    graph_cache,
    graph_common,
    module,
    named_replica_grouping,
    named_tensors,
    ops,
    performance_utils,
    remote,
    route_tensor,
    rts,
    streams,
    task_session,
    transforms,
    utils,
    variable_factory,
)
from popsr.addons.array_munging import (
    handle_negative_axis,
    pad_axis,
    repeat,
    repeat_axis,
    repeat_shard,
    shard,
    shard2D,
    split2D,
    squeeze_safe,
    tensor_parallel_input,
    unshard,
    unshard2D,
    unshard_arrays,
)
from popsr.addons.debugging import print_tensor, print_text
from popsr.addons.graph import BoundGraph, GraphWithNamedArgs
from popsr.addons.graph_cache import (
    GraphCache,
    argument_hash,
    bound_arguments,
    function,
    get_function_hash,
    tensor_hash,
)
from popsr.addons.module import Module, NameScopeMeta, create_grad_graph_info
from popsr.addons.named_tensors import NamedTensors
from popsr.addons.ops import fp8_amax_scale, replicated_strided_collectives
from popsr.addons.ops.cross_entropy import cross_entropy, cross_entropy_with_grad
from popsr.addons.ops.streams import host_load, host_store
from popsr.addons.performance_utils import (
    evaluate_FLOPs,
    evaluate_ir_FLOPs,
    format_flops_scientific,
    print_FLOPs,
    total_FLOPs,
)
from popsr.addons.remote import (
    create_remote_buffer,
    load_remote_graph,
    named_buffers,
    named_variable_buffers,
    store_remote_graph,
)
from popsr.addons.route_tensor import is_subgraph, route_tensor_into_graph
from popsr.addons.seed_variable import seed_variable
from popsr.addons.streams import InputStreams, OutputStreams
from popsr.addons.task_session import TaskSession, write_variables_pb
from popsr.addons.transforms import (
    available_memory_proportion,
    batch_serialisation,
    pipelining,
    recomputation,
    use_fc_pass,
)
from popsr.addons.transforms.autodiff import autodiff, autodiff_with_accumulation
from popsr.addons.transforms.available_memory_proportion import (
    set_available_memory_proportion_by_ipu,
    set_graph_available_memory_proportion_by_ipu,
)
from popsr.addons.transforms.batch_serialisation import (
    RemoteHandle,
    batch_serial_buffer,
    batch_serialise,
    batch_serialise_fwd_and_grad,
)
from popsr.addons.transforms.pipelining import pipelined_execution
from popsr.addons.transforms.recomputation import add_recompute_inputs, recompute_graph
from popsr.addons.transforms.use_fc_pass import disable_fc_pass, enable_fc_pass
from popsr.addons.utils import (
    OrderedDict,
    WeightsDict,
    duplicate_items,
    overrides,
    suffix_graph_name,
    timer,
)
from popsr.addons.variable_factory import (
    NamedVariableFactories,
    VariableFactory,
    add_replica_sharded_variable_input,
    add_variable_input,
)

GIT_COMMIT = None
"""PopXL's programs may log it; popsr says what it is by ``popsr.__version__``."""

__all__ = [
    "GIT_COMMIT",
    "BoundGraph",
    "GraphCache",
    "GraphWithNamedArgs",
    "InputStreams",
    "Module",
    "NameScopeMeta",
    "NamedTensors",
    "NamedVariableFactories",
    "OrderedDict",
    "OutputStreams",
    "RemoteHandle",
    "TaskSession",
    "VariableFactory",
    "WeightsDict",
    "add_recompute_inputs",
    "add_replica_sharded_variable_input",
    "add_variable_input",
    "argument_hash",
    "array_munging",
    "autodiff",
    "autodiff_with_accumulation",
    "available_memory_proportion",
    "batch_serial_buffer",
    "batch_serialisation",
    "batch_serialise",
    "batch_serialise_fwd_and_grad",
    "bound_arguments",
    "create_grad_graph_info",
    "create_remote_buffer",
    "cross_entropy",
    "cross_entropy_with_grad",
    "debugging",
    "disable_fc_pass",
    "dot_tree",
    "duplicate_items",
    "enable_fc_pass",
    "evaluate_FLOPs",
    "evaluate_ir_FLOPs",
    "format_flops_scientific",
    "fp8_amax_scale",
    "fp8_utils",
    "function",
    "get_function_hash",
    "graph",
    "graph_cache",
    "graph_common",
    "handle_negative_axis",
    "host_load",
    "host_store",
    "is_subgraph",
    "load_remote_graph",
    "module",
    "named_buffers",
    "named_replica_grouping",
    "named_tensors",
    "named_variable_buffers",
    "ops",
    "overrides",
    "pad_axis",
    "performance_utils",
    "pipelined_execution",
    "pipelining",
    "print_FLOPs",
    "print_tensor",
    "print_text",
    "recomputation",
    "recompute_graph",
    "remote",
    "repeat",
    "repeat_axis",
    "repeat_shard",
    "replicated_strided_collectives",
    "route_tensor",
    "route_tensor_into_graph",
    "rts",
    "seed_variable",
    "set_available_memory_proportion_by_ipu",
    "set_graph_available_memory_proportion_by_ipu",
    "shard",
    "shard2D",
    "split2D",
    "squeeze_safe",
    "store_remote_graph",
    "streams",
    "suffix_graph_name",
    "task_session",
    "tensor_hash",
    "tensor_parallel_input",
    "timer",
    "total_FLOPs",
    "transforms",
    "unshard",
    "unshard2D",
    "unshard_arrays",
    "use_fc_pass",
    "utils",
    "variable_factory",
    "write_variables_pb",
]

if not TYPE_CHECKING:
    __getattr__ = public(
        lazy_attributes(__name__, ("layers", "optimizers"), {}, unknown_attribute(__name__, __all__))
    )

__dir__ = names_only(__all__)
