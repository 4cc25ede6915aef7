"""Modules, named state and transforms for programs, with the names of popxl_addons.

A :class:`Module` is a graph with state; ``create_graph`` returns factories of its variables and the graph, with names
for the inputs that stand for them. ``docs/differences.md`` says where popsr does otherwise.
"""

from popsr.addons import (
    dot_tree,
    graph,
    graph_cache,
    module,
    named_replica_grouping,
    named_tensors,
    ops,
    remote,
    rts,
    transforms,
    utils,
    variable_factory,
)
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
from popsr.addons.ops.cross_entropy import cross_entropy, cross_entropy_with_grad
from popsr.addons.transforms.autodiff import autodiff, autodiff_with_accumulation
from popsr.addons.transforms.recomputation import add_recompute_inputs, recompute_graph
from popsr.addons.variable_factory import (
    NamedVariableFactories,
    VariableFactory,
    add_replica_sharded_variable_input,
    add_variable_input,
)
