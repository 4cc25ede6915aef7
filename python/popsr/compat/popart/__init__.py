"""The names of PopART's own package that PopXL programs use."""

from typing import TYPE_CHECKING

from popsr._program.graph import Graph
from popsr._program.options import enums
from popsr._program.options.enums import *
from popsr._program.options.options import Options as SessionOptions
from popsr._program.options.settings import (
    AccumulateOuterFragmentSettings,
    AutomaticLossScalingSettings,
    BatchSerializationSettings,
    ExecutionPhaseSettings,
    ExperimentalSettings,
    NumIOTiles,
    ReplicatedCollectivesSettings,
    TensorLocation,
    TensorLocationSettings,
)
from popsr._session import devices
from popsr._session.devices import *
from popsr._session.session import Session
from popsr._support.text.suggestions import unknown_attribute
from popsr.compat._device_libraries import load_library
from popsr.compat._objects import data_flow, types
from popsr.compat._objects.data_flow import *
from popsr.compat._objects.identifiers import DebugContext, OperatorIdentifier
from popsr.compat._objects.types import *
from popsr.compat.popart import _errors, _logging, _names, _optimisers, _sessions, _settings, _supported
from popsr.compat.popart._builder import Builder
from popsr.compat.popart._errors import *
from popsr.compat.popart._logging import *
from popsr.compat.popart._names import *
from popsr.compat.popart._optimisers import *
from popsr.compat.popart._sessions import *
from popsr.compat.popart._settings import *
from popsr.compat.popart._step_io import PyStepIO, PyStepIOCallback
from popsr.compat.popart._supported import *
from popsr.compat.popart._transformer import GraphTransformer
from popsr.io import PyWeightsIO
from popsr.replicas import CommGroup, CommGroupType, ReplicaGrouping, VariableRetrievalMode
from popsr.tensorlocation import ExecutionContext, ReplicatedTensorSharding, TensorStorage, TileSet

__all__ = [
    "AccumulateOuterFragmentSettings",
    "AutomaticLossScalingSettings",
    "BatchSerializationSettings",
    "Builder",
    "CommGroup",
    "CommGroupType",
    "DebugContext",
    "ExecutionContext",
    "ExecutionPhaseSettings",
    "ExperimentalSettings",
    "Graph",
    "GraphTransformer",
    "NumIOTiles",
    "OperatorIdentifier",
    "PyStepIO",
    "PyStepIOCallback",
    "PyWeightsIO",
    "ReplicaGrouping",
    "ReplicatedCollectivesSettings",
    "ReplicatedTensorSharding",
    "Session",
    "SessionOptions",
    "TensorLocation",
    "TensorLocationSettings",
    "TensorStorage",
    "TileSet",
    "VariableRetrievalMode",
    "load_library",
    *_errors.__all__,
    *_logging.__all__,
    *_names.__all__,
    *_optimisers.__all__,
    *_sessions.__all__,
    *_settings.__all__,
    *_supported.__all__,
    *data_flow.__all__,
    *devices.__all__,
    *enums.__all__,
    *types.__all__,
]

if not TYPE_CHECKING:
    __getattr__ = unknown_attribute("popart", __all__)
