"""PopXL's module of tensors, and of the functions that make them other than ops."""

from popsr._program.create_graph import graph_input, graph_output
from popsr._program.tensor import Constant, Tensor, TensorByRef, TensorLike, Variable, constant
from popsr._program.tensor_spec import TensorSpec
from popsr._program.variables.remote_variables import (
    remote_replica_sharded_variable,
    remote_variable,
    replica_sharded_buffer,
    replica_sharded_variable,
)
from popsr._program.variables.variables import variable
from popsr._support.host.types import HostTensor, ScalarType, host_tensor_types
from popsr.utils import HostScalarTensor

__all__ = [
    "Constant",
    "HostScalarTensor",
    "HostTensor",
    "ScalarType",
    "Tensor",
    "TensorByRef",
    "TensorLike",
    "TensorSpec",
    "Variable",
    "constant",
    "graph_input",
    "graph_output",
    "host_tensor_types",
    "remote_replica_sharded_variable",
    "remote_variable",
    "replica_sharded_buffer",
    "replica_sharded_variable",
    "variable",
]
