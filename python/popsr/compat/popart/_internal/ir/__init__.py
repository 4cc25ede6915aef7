"""The names of ``popart._internal.ir`` that PopXL programs and their tests use.

Ops are told by class: ``isinstance(op, _ir.op.AddOp)`` holds for ops of ``graph.ops`` and of
``graph._pb_graph.getOps()``, and of the latter ``type(op) is _ir.op.AddOp`` too.
"""

from typing import TYPE_CHECKING

from popsr._popart_objects import PopartGraph as Graph
from popsr._popart_objects import PopartIr as Ir
from popsr._popart_objects import PopartTensor as Tensor
from popsr._popart_objects._identifiers import DebugContext, DebugInfo, GraphId, OperatorIdentifier
from popsr._popart_objects._identifiers import OpSettings as Settings
from popsr._popart_objects._op_classes import Op
from popsr._popart_objects._tensor import TensorLocationInfo, TensorType
from popsr._suggestions import unknown_attribute
from popsr.compat.popart._data_flow import DataFlow
from popsr.compat.popart._internal.ir import op, patterns, transforms
from popsr.compat.popart._types import DataType, TensorInfo
from popsr.options import Options as SessionOptions
from popsr.replicas import CommGroup, CommGroupType, ReplicaGrouping, VariableRetrievalMode, VariableSettings
from popsr.tensorlocation import (
    ExecutionContext,
    ReplicatedTensorSharding,
    TensorLocation,
    TensorStorage,
    TileSet,
)

__all__ = [
    "CommGroup",
    "CommGroupType",
    "DataFlow",
    "DataType",
    "DebugContext",
    "DebugInfo",
    "ExecutionContext",
    "Graph",
    "GraphId",
    "Ir",
    "Op",
    "OperatorIdentifier",
    "ReplicaGrouping",
    "ReplicatedTensorSharding",
    "SessionOptions",
    "Settings",
    "Tensor",
    "TensorInfo",
    "TensorLocation",
    "TensorLocationInfo",
    "TensorStorage",
    "TensorType",
    "TileSet",
    "VariableRetrievalMode",
    "VariableSettings",
    "op",
    "patterns",
    "transforms",
]

if not TYPE_CHECKING:
    __getattr__ = unknown_attribute(__name__, __all__)
