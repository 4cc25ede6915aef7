"""Proofs that the replicas of a training step agree, and PopXL-style programs on an in-process simulator of replicas.

The public surface has PopXL's names, so ``import popsr as popxl`` works for the parts that exist.
"""

from popsr._support.host import interpreter as _interpreter  # noqa: F401

# isort: split
from typing import TYPE_CHECKING

from popsr import dtypes, errors, ops, replicas
from popsr._core import __version__
from popsr._program.context import (
    gcg,
    get_current_graph,
    get_ir,
    get_main_graph,
    gir,
    gmg,
    in_sequence,
    io_tiles,
    ipu,
    location,
    name_scope,
    stochastic_rounding,
)
from popsr._program.create_graph import graph_input, graph_output
from popsr._program.graph import Graph
from popsr._program.ir import Ir
from popsr._program.module import Module
from popsr._program.op import StochasticRoundingMethod
from popsr._program.popxl_modules import POPXL_MODULES
from popsr._program.streams import DeviceToHostStream, HostToDeviceStream, d2h_stream, h2d_stream
from popsr._program.tensor import Constant, Tensor, TensorByRef, Variable, constant
from popsr._program.tensor_spec import TensorSpec
from popsr._program.variables.remote_buffer import RemoteBuffer, remote_buffer
from popsr._program.variables.variables import variable
from popsr._support.lazy import lazy_attributes, names_only
from popsr._support.settings import build_info, num_threads, set_num_threads
from popsr._support.text.entry_points import public
from popsr._support.text.logs import follow_environment
from popsr._support.text.suggestions import unknown_attribute
from popsr.dtypes import (
    bfloat16,
    bool,
    complex64,
    complex128,
    double,
    dtype,
    float,
    float4_e2m1fn,
    float8_143,
    float8_152,
    float8_e4m3fn,
    float8_e5m2,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    half,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from popsr.errors import Error, FloatingPointError, ReplicaWarning
from popsr.replicas import ReplicaGrouping
from popsr.tensorlocation import (
    ExecutionContext,
    ReplicatedTensorSharding,
    TensorLocation,
    TensorStorage,
    TileSet,
)

if TYPE_CHECKING:
    from popsr import addons, analysis, bridge, compat, fp8_utils, guard, io, sr, transforms
    from popsr._program.random_seed import create_seeds
    from popsr._program.variables.remote_variables import (
        remote_replica_sharded_variable,
        remote_variable,
        replica_sharded_buffer,
        replica_sharded_variable,
    )
    from popsr._session.session import Session
    from popsr._support.host.dlpack import from_dlpack, to_dlpack
    from popsr._tools.record.compare import diff
    from popsr._tools.record.recording import record
    from popsr.bridge._proof.prove import prove
    from popsr.sr._adder import StochasticAdder

__all__ = [
    "Constant",
    "DeviceToHostStream",
    "Error",
    "ExecutionContext",
    "FloatingPointError",
    "Graph",
    "HostToDeviceStream",
    "Ir",
    "Module",
    "RemoteBuffer",
    "ReplicaGrouping",
    "ReplicaWarning",
    "ReplicatedTensorSharding",
    "Session",
    "StochasticAdder",
    "StochasticRoundingMethod",
    "Tensor",
    "TensorByRef",
    "TensorLocation",
    "TensorSpec",
    "TensorStorage",
    "TileSet",
    "Variable",
    "__version__",
    "addons",
    "analysis",
    "bfloat16",
    "bool",
    "bridge",
    "build_info",
    "compat",
    "complex64",
    "complex128",
    "constant",
    "create_seeds",
    "d2h_stream",
    "diff",
    "double",
    "dtype",
    "dtypes",
    "errors",
    "float",
    "float4_e2m1fn",
    "float8_143",
    "float8_152",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e8m0fnu",
    "float16",
    "float32",
    "float64",
    "fp8_utils",
    "from_dlpack",
    "gcg",
    "get_current_graph",
    "get_ir",
    "get_main_graph",
    "gir",
    "gmg",
    "graph_input",
    "graph_output",
    "guard",
    "h2d_stream",
    "half",
    "in_sequence",
    "int8",
    "int16",
    "int32",
    "int64",
    "io",
    "io_tiles",
    "ipu",
    "location",
    "name_scope",
    "num_threads",
    "ops",
    "prove",
    "record",
    "remote_buffer",
    "remote_replica_sharded_variable",
    "remote_variable",
    "replica_sharded_buffer",
    "replica_sharded_variable",
    "replicas",
    "set_num_threads",
    "sr",
    "stochastic_rounding",
    "to_dlpack",
    "transforms",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "variable",
]

_LAZY_MODULES = ("addons", "analysis", "bridge", "compat", "fp8_utils", "guard", "io", "sr", "transforms")
_REMOTE = (
    "remote_replica_sharded_variable",
    "remote_variable",
    "replica_sharded_buffer",
    "replica_sharded_variable",
)
if not TYPE_CHECKING:
    # Names that most programs do not need, or need last, are imported at their first use.
    __getattr__ = public(
        lazy_attributes(
            __name__,
            {
                **{name: f"popsr.{name}" for name in _LAZY_MODULES},
                **POPXL_MODULES,
                "options": "popsr._program.options.options",
            },
            {
                "Session": "popsr._session.session",
                "StochasticAdder": "popsr.sr._adder",
                "create_seeds": "popsr._program.random_seed",
                **dict.fromkeys(_REMOTE, "popsr._program.variables.remote_variables"),
                "from_dlpack": "popsr._support.host.dlpack",
                "to_dlpack": "popsr._support.host.dlpack",
                "diff": "popsr._tools.record.compare",
                "prove": "popsr.bridge._proof.prove",
                "record": "popsr._tools.record.recording",
            },
            unknown_attribute(__name__, __all__),
        )
    )
    __dir__ = names_only(__all__)

    follow_environment()
