"""PopXL-style programs on an in-process simulator that proves which replicas agree.

The public surface has PopXL's names, so ``import popsr as popxl`` works for the parts that exist.
"""

from popsr._host import interpreter as _interpreter  # noqa: F401

# isort: split
from typing import TYPE_CHECKING

from popsr import dtypes, errors, ops, replicas
from popsr._core import __version__
from popsr._late_members import add_late_members
from popsr._lazy import lazy_attributes, names_only
from popsr._program.calls import explain_calls
from popsr._text.entry_points import add_entry_points, entry_point
from popsr._text.logs import follow_environment
from popsr._text.suggestions import unknown_attribute
from popsr.context import (
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
from popsr.graph import Graph
from popsr.ir import Ir
from popsr.module import Module
from popsr.op import StochasticRoundingMethod
from popsr.random_seed import create_seeds
from popsr.remote_buffer import RemoteBuffer, remote_buffer
from popsr.replicas import ReplicaGrouping
from popsr.settings import build_info, num_threads, set_num_threads
from popsr.streams import DeviceToHostStream, HostToDeviceStream, d2h_stream, h2d_stream
from popsr.tensor import (
    Constant,
    Tensor,
    TensorByRef,
    TensorSpec,
    Variable,
    constant,
    graph_input,
    graph_output,
    remote_replica_sharded_variable,
    remote_variable,
    replica_sharded_buffer,
    replica_sharded_variable,
    variable,
)
from popsr.tensorlocation import (
    ExecutionContext,
    ReplicatedTensorSharding,
    TensorLocation,
    TensorStorage,
    TileSet,
)

if TYPE_CHECKING:
    from popsr import addons, analysis, bridge, compat, fp8_utils, io, sr, transforms
    from popsr._host.dlpack import from_dlpack, to_dlpack
    from popsr._record.compare import diff
    from popsr._record.recording import record
    from popsr.bridge._prove import prove
    from popsr.session import Session
    from popsr.stochastic_adder import StochasticAdder

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

add_late_members()

if not TYPE_CHECKING:
    # Names that most programs do not need, or need last, are imported at their first use.
    __getattr__ = entry_point(
        lazy_attributes(
            __name__,
            ("addons", "analysis", "bridge", "compat", "fp8_utils", "io", "sr", "transforms"),
            {
                "Session": "popsr.session",
                "StochasticAdder": "popsr.stochastic_adder",
                "from_dlpack": "popsr._host.dlpack",
                "to_dlpack": "popsr._host.dlpack",
                "diff": "popsr._record.compare",
                "prove": "popsr.bridge._prove",
                "record": "popsr._record.recording",
            },
            unknown_attribute(__name__, __all__),
        )
    )
    __dir__ = names_only(__all__)

    explain_calls(globals(), __all__)
    add_entry_points(__name__)
    follow_environment()
