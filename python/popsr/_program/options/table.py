"""PopART's session options: the one table of their names, types, defaults and effects.

``Options`` takes its attributes and checks from here, a session its line of log, and ``python -m popsr options`` its
page. The kinds are words that the module ``kinds`` reads; enumerations and settings are named by their class.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

__all__ = ["ALIASES", "OPTIONS", "OWN", "SETTINGS", "Row"]


class Row(NamedTuple):
    """An option, or an attribute of settings.

    Attributes:
        name: PopART's name.
        kind: the values that it takes.
        default: the value when nothing was set, which ``popsr._program.options.kinds.default_of`` reads.
        effect: effect here, or the reason why there is none.
        is_used: True if it has an effect.
        own_name: popsr's spelling, if it has one; the value is stored under it.
    """

    name: str
    kind: str
    default: Any
    effect: str
    is_used: bool = True
    own_name: str = ""

    @property
    def key(self) -> str:
        """The name that the value is stored under."""
        return self.own_name or self.name


def _without(reason: str, *rows: tuple[str, str, Any]) -> Iterable[Row]:
    """Options that are recorded and have no effect, for one reason."""
    return (Row(*row, reason, False) for row in rows)


_REPLICATION = "of a program, follows its replication; checked against it when a session is made"
_ACCUMULATION = "micro batches of models of ONNX; an error in PopXL programs, which accumulate explicitly"
_DOT = "when a session is made, each name in `dotChecks` is a file for Graphviz in `logDir`, as by `ir.dot_checkpoint`"
_CACHE = "accepted: there are no executables to cache"

_COMPILER = "the simulator has no device compiler"
_CODE = "the simulator runs no device code"
_MEMORY = "every tensor is in host memory"
_PLACES = "IPUs and tiles are recorded, and nothing depends on them"
_WEIGHTS = "all variables can be written at any time"
_CYCLES = "the simulator counts no cycles"
_SCHEDULE = "ops run in program order"
_OUTLINING = "graphs are run as they are written"
_BUILDER = "PopXL programs write this out; the option is for programs of PopART's Builder"
_STREAMS = "runs read and write the caller's arrays"
_NUMERICS = "the accuracy of each op is the one that popsr documents"

OPTIONS: tuple[Row, ...] = (
    # With an effect.
    Row(
        *("enableStochasticRounding", "bool", False, "narrow floats are rounded stochastically"),
        own_name="enable_stochastic_rounding",
    ),
    Row(
        *("_enableRngStateManagement", "bool", False),
        'True: `stochastic_rounding_mode = "popart"`, False: `"identical"`',
    ),
    Row(
        *("throwIfLog2ScaleTensorNotInRange", "bool", True, "float8 ops refuse scales outside [-32, 32)"),
        own_name="throw_if_log2_scale_tensor_not_in_range",
    ),
    Row(
        *(
            "enableFloatingPointChecks",
            "bool",
            False,
            "a debugging mode that stops at invalid results and overflow",
        ),
        own_name="enable_floating_point_checks",
    ),
    Row(
        *("enableInplaceAmbiguityChecking", "bool", False, "ambiguous writes are errors"),
        own_name="enable_inplace_ambiguity_checking",
    ),
    Row(
        *("enableLoadAndOffloadRNGState", "bool", True),
        "`session.step` is the state of the random numbers; it is part of the host state and of checkpoints, "
        "also when this is False",
    ),
    Row("enableReplicatedGraphs", "bool", False, _REPLICATION),
    Row("replicatedGraphCount", "int from 1", 1, _REPLICATION),
    Row(
        "enableDistributedReplicatedGraphs",
        "bool",
        False,
        'sessions run on all processes that a launcher of MPI started; `Ir("popdist")` sets it where there are several',
    ),
    Row("globalReplicationFactor", "int from 1", 1, _REPLICATION),
    Row(
        "globalReplicaOffset",
        "int from 0",
        0,
        "must be the number of this process's first replica, or 0",
    ),
    Row("enableGradientAccumulation", "bool", False, _ACCUMULATION),
    Row("accumulationFactor", "int from 1", 1, _ACCUMULATION),
    Row(
        *("accumulationAndReplicationReductionType", "ReductionType", "Sum"),
        "of models of ONNX, sum or mean of gradients; PopXL programs write this out",
    ),
    Row(
        *("syntheticDataMode", "SyntheticDataMode", "Off"),
        "other than Off: streams to the device carry zeros or random numbers, which depend on seed, step and stream",
    ),
    Row("dotChecks", "set of str", (), _DOT),
    Row("dotOpNames", "bool", False, "boxes of these files have the names of ops"),
    Row(
        "firstDotOp",
        "int from 0",
        0,
        "first op of each graph, by its place in the program, that these files show",
    ),
    Row("finalDotOp", "int from 0", 10000, "the one after the last"),
    Row("logDir", "str", "", "folder of these files; empty: the current one"),
    Row("enableEngineCaching", "bool", False, _CACHE),
    Row("enableVariablesCaching", "bool", True, _CACHE),
    Row("cachePath", "str", "session_cache", _CACHE),
    Row(
        "instrumentWithHardwareCycleCounter", "bool", False, "accepted: `session.getCycleCount()` is an error"
    ),
    # Without.
    *_without(
        _COMPILER,
        ("engineOptions", "dict of str", ()),
        ("convolutionOptions", "dict of str", ()),
        ("gclOptions", "dict of str", ()),
        ("lstmOptions", "dict of str", ()),
        ("matmulOptions", "dict of str", ()),
        ("reportOptions", "dict of str", ()),
        ("compileEngine", "bool", True),
        ("exportPoplarComputationGraph", "bool", False),
        ("exportPoplarVertexGraph", "bool", False),
        ("opxAliasChecking", "bool", False),
        ("opxModifyChecking", "bool", False),
        ("separateCallOpPdfs", "bool", True),
        ("experimentalSettings", "ExperimentalSettings", None),
    ),
    *_without(
        _CODE,
        ("customCodelets", "list of str", ()),
        ("customCodeletCompileFlags", "str", ""),
    ),
    *_without(
        _NUMERICS,
        ("partialsTypeMatMuls", "partials", ""),
        ("enableStableNorm", "bool", False),
        ("enableNonStableSoftmax", "bool", False),
        ("groupNormStridedChannelGrouping", "bool", False),
        ("enableFullyConnectedPass", "bool", True),
    ),
    *_without(
        _MEMORY,
        ("activationTensorLocationSettings", "TensorLocationSettings", None),
        ("weightTensorLocationSettings", "TensorLocationSettings", None),
        ("optimizerStateTensorLocationSettings", "TensorLocationSettings", None),
        ("accumulatorTensorLocationSettings", "TensorLocationSettings", None),
        ("tensorLocationSettingsOverride", "dict of TensorLocation", ()),
        ("aliasZeroCopy", "bool", False),
    ),
    *_without(
        _PLACES,
        ("numIOTiles", "int from 0", 0),
        ("virtualGraphMode", "VirtualGraphMode", "Off"),
        ("virtualGraphSplitRatios", "list of float", ()),
    ),
    *_without(
        _WEIGHTS,
        ("constantWeights", "bool", True),
        ("updatableNamedBuffers", "list of str", ()),
    ),
    *_without(_CYCLES, ("hardwareInstrumentations", "set of Instrumentation", ("Outer",))),
    *_without(
        _SCHEDULE,
        ("batchSerializationSettings", "BatchSerializationSettings", None),
        ("executionPhaseSettings", "ExecutionPhaseSettings", None),
        ("accumulateOuterFragmentSettings", "AccumulateOuterFragmentSettings", None),
        ("replicatedCollectivesSettings", "ReplicatedCollectivesSettings", None),
        ("delayVarUpdates", "bool", True),
        ("scheduleNonWeightUpdateGradientConsumersEarly", "bool", False),
        ("enableMergeExchange", "bool", True),
        ("enableEfficientOverlapIOTopoCons", "bool", False),
        ("kahnTieBreaker", "str", "greedy"),
        ("timeLimitScheduler", "float", 1e9),
        ("swapLimitScheduler", "int", 10**9),
        ("transitiveClosureOptimizationThreshold", "int from 0", 100000),
        ("serializedPoprithmsAnnealGraphsDir", "str", ""),
        ("serializedPoprithmsShiftGraphsDir", "str", ""),
        ("mergeVarUpdate", "MergeVarUpdateType", "Off"),
        ("mergeVarUpdateMemThreshold", "int", 1000000),
    ),
    *_without(
        _OUTLINING,
        ("enableOutlining", "bool", True),
        ("enableOutliningCopyCostPruning", "bool", True),
        ("outlineThreshold", "float", 1.0),
        ("outlineSequenceBreakCost", "float", 10000.0),
        ("subgraphCopyingStrategy", "SubgraphCopyingStrategy", "OnEnterAndExit"),
        ("useLoopCandidateCreator", "bool", False),
        ("enableConstantFoldingOfMultipleConsumers", "bool", True),
    ),
    *_without(
        _BUILDER,
        ("autoRecomputation", "RecomputationType", "NoRecompute"),
        ("explicitRecomputation", "bool", False),
        ("automaticLossScalingSettings", "AutomaticLossScalingSettings", None),
        ("meanAccumulationAndReplicationReductionStrategy", "MeanReductionStrategy", "Post"),
        ("decomposeGradSum", "bool", False),
        ("enablePipelining", "bool", False),
        ("createImplicitPipeliningFwdOnlyProgram", "bool", False),
        ("stashAllTensorsInferencePipeline", "bool", False),
        ("enableExplicitMainLoops", "bool", False),
        ("enableSupportedDataTypeCasting", "bool", True),
        ("ensureFp32LossScaleTensor", "bool", False),
        ("disableGradAccumulationTensorStreams", "bool", False),
        ("disableOptimizerStateTensorStreams", "bool", False),
        ("strictOpVersions", "bool", True),
    ),
    *_without(
        _STREAMS,
        ("bufferingDepthMap", "dict of int", ()),
        ("prefetchBufferingDepthMap", "dict of int", ()),
        ("defaultBufferingDepth", "int from 0", 1),
        ("defaultPrefetchBufferingDepth", "int from 0", 1),
        ("enablePrefetchDatastreams", "bool", True),
        ("groupHostSync", "bool", False),
        ("rearrangeAnchorsOnHost", "bool", True),
        ("rearrangeStreamsOnHost", "bool", False),
        ("useHostCopyOps", "bool", False),
    ),
)

# Options of popsr alone.
OWN = (
    Row("stochastic_rounding_mode", "str", "partition", "which replicas round with the same random numbers"),
    Row("seed", "int", 0, "seed of the random numbers"),
)

# Further spellings of PopART's.
ALIASES = {
    f"_{name}": name
    for name in (
        "convolutionOptions",
        "engineOptions",
        "gclOptions",
        "lstmOptions",
        "matmulOptions",
        "reportOptions",
        "tensorLocationSettingsOverride",
    )
}

# Attributes of the settings that options hold, by class.
SETTINGS: dict[str, tuple[Row, ...]] = {
    "AccumulateOuterFragmentSettings": (
        *_without(
            _SCHEDULE,
            ("schedule", "AccumulateOuterFragmentSchedule", "Serial"),
            ("excludedVirtualGraphs", "list of int", ()),
        ),
    ),
    "AutomaticLossScalingSettings": (
        *_without(
            _BUILDER,
            ("enabled", "bool", False),
            ("binEdgeLocation", "float", 0.125),
            ("thresholdUpperCountProportion", "float", 1e-7),
            ("toTrackTensors", "list of str or None", None),
            ("updatePeriod", "int from 1", 1),
            (
                "gradientTensorTrackingMethod",
                "GradientTensorTrackingMethod",
                "AllNonViewChangingGradientTensors",
            ),
        ),
    ),
    "BatchSerializationSettings": (
        *_without(
            _SCHEDULE,
            ("factor", "int from 0", 0),
            ("concatOnVirtualGraphChange", "bool", True),
            ("concatOnExecutionPhaseChange", "bool", True),
            ("concatOnPipelineStageChange", "bool", True),
            ("transformContext", "BatchSerializationTransformContext", "Fwd"),
            ("method", "BatchSerializationMethod", "UnrollDynamic"),
            ("batchSchedule", "BatchSerializationBatchSchedule", "Isomorphic"),
        ),
    ),
    "ExecutionPhaseSettings": (
        *_without(
            _SCHEDULE,
            ("phases", "int from 0", 0),
            ("stages", "int from 1", 2),
            ("weightIOSchedule", "ExecutionPhaseIOSchedule", "Preload"),
            ("activationIOSchedule", "ExecutionPhaseIOSchedule", "Preload"),
            ("optimizerStateIOSchedule", "ExecutionPhaseIOSchedule", "OnDemand"),
            ("accumulatorIOSchedule", "ExecutionPhaseIOSchedule", "Preload"),
            ("schedule", "ExecutionPhaseSchedule", "Interleaving"),
        ),
    ),
    "ExperimentalSettings": (
        *_without(
            _COMPILER,
            ("customTransformApplierSettings", "dict of list of str", ()),
            ("createHostTransferableTensorWithOffset", "bool", False),
        ),
    ),
    "ReplicatedCollectivesSettings": (
        *_without(
            _SCHEDULE,
            ("prepareScheduleForMergingCollectives", "bool", False),
            ("mergeAllReduceCollectives", "bool", False),
            ("mergeReduceScatterCollectives", "bool", False),
            ("mergeAllGatherCollectives", "bool", False),
        ),
    ),
    "TensorLocation": (
        *_without(
            _MEMORY,
            ("storage", "TensorStorage", "OnChip"),
            ("loadTileSet", "TileSet", "Compute"),
            ("storageTileSet", "TileSet", "Compute"),
            ("replicatedTensorSharding", "ReplicatedTensorSharding", "Off"),
            ("shardingDomain", "CommGroup or None", None),
        ),
    ),
    "TensorLocationSettings": (
        *_without(
            _MEMORY,
            ("location", "TensorLocation", None),
            ("minElementsForOffChip", "int from 0", 2),
            ("minElementsForReplicatedTensorSharding", "int from 0", 8192),
        ),
    ),
}
