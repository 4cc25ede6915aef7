"""The names of ``popart._internal.ir`` that PopXL programs and their tests use.

Ops are told by class: ``isinstance(op, _ir.op.AddOp)`` holds for ops of ``graph.ops`` and of
``graph._pb_graph.getOps()``, and of the latter ``type(op) is _ir.op.AddOp`` too.
"""

from typing import TYPE_CHECKING

from popsr import tensorlocation
from popsr._program.options.options import Options as SessionOptions
from popsr._support.text.suggestions import unknown_attribute
from popsr.compat._objects import types
from popsr.compat._objects.data_flow import DataFlow
from popsr.compat._objects.identifiers import DebugContext, DebugInfo, GraphId, OperatorIdentifier
from popsr.compat._objects.identifiers import OpSettings as Settings
from popsr.compat._objects.members import PopartGraph as Graph
from popsr.compat._objects.members import PopartIr as Ir
from popsr.compat._objects.members import PopartTensor as Tensor
from popsr.compat._objects.op_classes import Op
from popsr.compat._objects.tensor import TensorLocationInfo, TensorType
from popsr.compat._objects.types import *
from popsr.compat.popart._internal.ir import op, patterns, transforms
from popsr.replicas import CommGroup, CommGroupType, ReplicaGrouping, VariableRetrievalMode, VariableSettings
from popsr.tensorlocation import *

__all__ = [
    "CommGroup",
    "CommGroupType",
    "DataFlow",
    "DebugContext",
    "DebugInfo",
    "Graph",
    "GraphId",
    "Ir",
    "Op",
    "OperatorIdentifier",
    "ReplicaGrouping",
    "SessionOptions",
    "Settings",
    "Tensor",
    "TensorLocationInfo",
    "TensorType",
    "VariableRetrievalMode",
    "VariableSettings",
    "op",
    "patterns",
    "transforms",
    *tensorlocation.__all__,
    *types.__all__,
]

if not TYPE_CHECKING:
    __getattr__ = unknown_attribute(__name__, __all__)
