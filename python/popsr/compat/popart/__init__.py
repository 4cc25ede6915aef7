"""The names of PopART's own package that PopXL programs use."""

from typing import TYPE_CHECKING

from popsr._options.enums import (
    AccumulateOuterFragmentSchedule,
    AutodiffStitchStrategy,
    BatchSerializationBatchSchedule,
    BatchSerializationMethod,
    BatchSerializationTransformContext,
    ExecutionPhaseIOSchedule,
    ExecutionPhaseSchedule,
    GradientTensorTrackingMethod,
    Instrumentation,
    MeanReductionStrategy,
    MergeVarUpdateType,
    RecomputationType,
    ReductionType,
    SubgraphCopyingStrategy,
    SyntheticDataMode,
    VirtualGraphMode,
)
from popsr._options.settings import (
    AccumulateOuterFragmentSettings,
    AutomaticLossScalingSettings,
    BatchSerializationSettings,
    ExecutionPhaseSettings,
    ExperimentalSettings,
    NumIOTiles,
    ReplicatedCollectivesSettings,
    TensorLocationSettings,
)
from popsr._popart.data_flow import (
    AnchorReturnType,
    AnchorReturnTypeId,
    DataFlow,
    Patterns,
    PatternsLevel,
)
from popsr._popart.types import DataType, TensorInfo
from popsr._session.devices import (
    DeviceConnectionType,
    DeviceInfo,
    DeviceManager,
    DeviceSelectionCriterion,
    DeviceType,
    SyncPattern,
)
from popsr._text.suggestions import unknown_attribute
from popsr.compat._device_libraries import load_library
from popsr.compat.popart._builder import Builder
from popsr.compat.popart._errors import (
    popart_exception,
    popart_internal_exception,
    popart_runtime_error,
    poplar_application_runtime_error,
    poplar_exception,
    poplar_recoverable_runtime_error,
    poplar_runtime_error,
)
from popsr.compat.popart._logging import Logger, getLogger
from popsr.compat.popart._names import (
    CollectiveOperator,
    InitType,
    ScatterReduction,
    TensorRemapType,
    reservedAccl1Prefix,
    reservedAccl2Prefix,
    reservedAccl3Prefix,
    reservedAcclPrefix,
    reservedAccumPrefix,
    reservedGradientPrefix,
    reservedLossScalingPrefix,
    reservedStepPrefix,
    reservedUpdatedVarPrefix,
)
from popsr.compat.popart._node_attributes import RecomputeType
from popsr.compat.popart._optimisers import (
    SGD,
    Adam,
    AdamMode,
    Adaptive,
    AdaptiveMode,
    ClipNormSettings,
    ConstSGD,
    Optimizer,
    OptimizerValue,
    SGDAccumulatorAndMomentum,
    WeightDecayMode,
)
from popsr.compat.popart._sessions import InferenceSession, TrainingSession
from popsr.compat.popart._settings import (
    ExchangeStrategy,
    InputSettings,
    ReplicatedStreamMode,
    VariableSettings,
)
from popsr.compat.popart._shapes import InputShapeInfo
from popsr.compat.popart._step_io import PyStepIO, PyStepIOCallback
from popsr.compat.popart._version import versionString
from popsr.graph import Graph
from popsr.io import PyWeightsIO
from popsr.options import Options as SessionOptions
from popsr.replicas import CommGroup, CommGroupType, ReplicaGrouping, VariableRetrievalMode
from popsr.session import Session
from popsr.tensorlocation import (
    ExecutionContext,
    ReplicatedTensorSharding,
    TensorLocation,
    TensorStorage,
    TileSet,
)

__all__ = [
    "SGD",
    "AccumulateOuterFragmentSchedule",
    "AccumulateOuterFragmentSettings",
    "Adam",
    "AdamMode",
    "Adaptive",
    "AdaptiveMode",
    "AnchorReturnType",
    "AnchorReturnTypeId",
    "AutodiffStitchStrategy",
    "AutomaticLossScalingSettings",
    "BatchSerializationBatchSchedule",
    "BatchSerializationMethod",
    "BatchSerializationSettings",
    "BatchSerializationTransformContext",
    "Builder",
    "ClipNormSettings",
    "CollectiveOperator",
    "CommGroup",
    "CommGroupType",
    "ConstSGD",
    "DataFlow",
    "DataType",
    "DeviceConnectionType",
    "DeviceInfo",
    "DeviceManager",
    "DeviceSelectionCriterion",
    "DeviceType",
    "ExchangeStrategy",
    "ExecutionContext",
    "ExecutionPhaseIOSchedule",
    "ExecutionPhaseSchedule",
    "ExecutionPhaseSettings",
    "ExperimentalSettings",
    "GradientTensorTrackingMethod",
    "Graph",
    "InferenceSession",
    "InitType",
    "InputSettings",
    "InputShapeInfo",
    "Instrumentation",
    "Logger",
    "MeanReductionStrategy",
    "MergeVarUpdateType",
    "NumIOTiles",
    "Optimizer",
    "OptimizerValue",
    "Patterns",
    "PatternsLevel",
    "PyStepIO",
    "PyStepIOCallback",
    "PyWeightsIO",
    "RecomputationType",
    "RecomputeType",
    "ReductionType",
    "ReplicaGrouping",
    "ReplicatedCollectivesSettings",
    "ReplicatedStreamMode",
    "ReplicatedTensorSharding",
    "SGDAccumulatorAndMomentum",
    "ScatterReduction",
    "Session",
    "SessionOptions",
    "SubgraphCopyingStrategy",
    "SyncPattern",
    "SyntheticDataMode",
    "TensorInfo",
    "TensorLocation",
    "TensorLocationSettings",
    "TensorRemapType",
    "TensorStorage",
    "TileSet",
    "TrainingSession",
    "VariableRetrievalMode",
    "VariableSettings",
    "VirtualGraphMode",
    "WeightDecayMode",
    "getLogger",
    "load_library",
    "popart_exception",
    "popart_internal_exception",
    "popart_runtime_error",
    "poplar_application_runtime_error",
    "poplar_exception",
    "poplar_recoverable_runtime_error",
    "poplar_runtime_error",
    "reservedAccl1Prefix",
    "reservedAccl2Prefix",
    "reservedAccl3Prefix",
    "reservedAcclPrefix",
    "reservedAccumPrefix",
    "reservedGradientPrefix",
    "reservedLossScalingPrefix",
    "reservedStepPrefix",
    "reservedUpdatedVarPrefix",
    "versionString",
]

if not TYPE_CHECKING:
    __getattr__ = unknown_attribute("popart", __all__)
