"""The names of PopART's own package that PopXL programs use."""

from popsr.compat._device_libraries import load_library
from popsr.errors import Error as popart_exception  # noqa: N813
from popsr.errors import InternalError as popart_internal_exception  # noqa: N813
from popsr.graph import Graph
from popsr.io import PyWeightsIO
from popsr.options import Options as SessionOptions
from popsr.replicas import CommGroup, CommGroupType, ReplicaGrouping, VariableRetrievalMode, VariableSettings
from popsr.session import Session
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
    "ExecutionContext",
    "Graph",
    "PyWeightsIO",
    "ReplicaGrouping",
    "ReplicatedTensorSharding",
    "Session",
    "SessionOptions",
    "TensorLocation",
    "TensorStorage",
    "TileSet",
    "VariableRetrievalMode",
    "VariableSettings",
    "load_library",
    "popart_exception",
    "popart_internal_exception",
]
