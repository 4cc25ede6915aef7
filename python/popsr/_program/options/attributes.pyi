"""Types of the session options. Written by tests_py/repo/option_attributes.py from the table of options."""

# ruff: noqa: N802, N815 - PopART's names

from collections.abc import Iterable, Mapping

from popsr._program.options.enums import (
    Instrumentation,
    MeanReductionStrategy,
    MergeVarUpdateType,
    RecomputationType,
    ReductionType,
    SubgraphCopyingStrategy,
    SyntheticDataMode,
    VirtualGraphMode,
)
from popsr._program.options.record import Record
from popsr._program.options.settings import (
    AccumulateOuterFragmentSettings,
    AutomaticLossScalingSettings,
    BatchSerializationSettings,
    ExecutionPhaseSettings,
    ExperimentalSettings,
    ReplicatedCollectivesSettings,
    TensorLocation,
    TensorLocationSettings,
)
from popsr.tensorlocation import TensorLocation as Location

class OptionAttributes(Record):
    @property
    def _convolutionOptions(self) -> dict[str, str]: ...
    @_convolutionOptions.setter
    def _convolutionOptions(self, value: Mapping[str, str]) -> None: ...
    @property
    def _engineOptions(self) -> dict[str, str]: ...
    @_engineOptions.setter
    def _engineOptions(self, value: Mapping[str, str]) -> None: ...
    @property
    def _gclOptions(self) -> dict[str, str]: ...
    @_gclOptions.setter
    def _gclOptions(self, value: Mapping[str, str]) -> None: ...
    @property
    def _lstmOptions(self) -> dict[str, str]: ...
    @_lstmOptions.setter
    def _lstmOptions(self, value: Mapping[str, str]) -> None: ...
    @property
    def _matmulOptions(self) -> dict[str, str]: ...
    @_matmulOptions.setter
    def _matmulOptions(self, value: Mapping[str, str]) -> None: ...
    @property
    def _reportOptions(self) -> dict[str, str]: ...
    @_reportOptions.setter
    def _reportOptions(self, value: Mapping[str, str]) -> None: ...
    @property
    def _tensorLocationSettingsOverride(self) -> dict[str, TensorLocation]: ...
    @_tensorLocationSettingsOverride.setter
    def _tensorLocationSettingsOverride(self, value: Mapping[str, TensorLocation | Location]) -> None: ...
    accumulateOuterFragmentSettings: AccumulateOuterFragmentSettings
    accumulationAndReplicationReductionType: ReductionType
    accumulationFactor: int
    accumulatorTensorLocationSettings: TensorLocationSettings
    activationTensorLocationSettings: TensorLocationSettings
    aliasZeroCopy: bool
    autoRecomputation: RecomputationType
    automaticLossScalingSettings: AutomaticLossScalingSettings
    batchSerializationSettings: BatchSerializationSettings
    @property
    def bufferingDepthMap(self) -> dict[str, int]: ...
    @bufferingDepthMap.setter
    def bufferingDepthMap(self, value: Mapping[str, int]) -> None: ...
    cachePath: str
    compileEngine: bool
    constantWeights: bool
    @property
    def convolutionOptions(self) -> dict[str, str]: ...
    @convolutionOptions.setter
    def convolutionOptions(self, value: Mapping[str, str]) -> None: ...
    createImplicitPipeliningFwdOnlyProgram: bool
    customCodeletCompileFlags: str
    @property
    def customCodelets(self) -> list[str]: ...
    @customCodelets.setter
    def customCodelets(self, value: Iterable[str]) -> None: ...
    decomposeGradSum: bool
    defaultBufferingDepth: int
    defaultPrefetchBufferingDepth: int
    delayVarUpdates: bool
    disableGradAccumulationTensorStreams: bool
    disableOptimizerStateTensorStreams: bool
    @property
    def dotChecks(self) -> set[str]: ...
    @dotChecks.setter
    def dotChecks(self, value: Iterable[str]) -> None: ...
    dotOpNames: bool
    enableConstantFoldingOfMultipleConsumers: bool
    enableDistributedReplicatedGraphs: bool
    enableEfficientOverlapIOTopoCons: bool
    enableEngineCaching: bool
    enableExplicitMainLoops: bool
    enableFloatingPointChecks: bool
    enableFullyConnectedPass: bool
    enableGradientAccumulation: bool
    enableInplaceAmbiguityChecking: bool
    enableLoadAndOffloadRNGState: bool
    enableMergeExchange: bool
    enableNonStableSoftmax: bool
    enableOutlining: bool
    enableOutliningCopyCostPruning: bool
    enablePipelining: bool
    enablePrefetchDatastreams: bool
    enableReplicatedGraphs: bool
    enableStableNorm: bool
    enableStochasticRounding: bool
    enableSupportedDataTypeCasting: bool
    enableVariablesCaching: bool
    enable_floating_point_checks: bool
    enable_inplace_ambiguity_checking: bool
    enable_stochastic_rounding: bool
    @property
    def engineOptions(self) -> dict[str, str]: ...
    @engineOptions.setter
    def engineOptions(self, value: Mapping[str, str]) -> None: ...
    ensureFp32LossScaleTensor: bool
    executionPhaseSettings: ExecutionPhaseSettings
    experimentalSettings: ExperimentalSettings
    explicitRecomputation: bool
    exportPoplarComputationGraph: bool
    exportPoplarVertexGraph: bool
    finalDotOp: int
    firstDotOp: int
    @property
    def gclOptions(self) -> dict[str, str]: ...
    @gclOptions.setter
    def gclOptions(self, value: Mapping[str, str]) -> None: ...
    globalReplicaOffset: int
    globalReplicationFactor: int
    groupHostSync: bool
    groupNormStridedChannelGrouping: bool
    @property
    def hardwareInstrumentations(self) -> set[Instrumentation]: ...
    @hardwareInstrumentations.setter
    def hardwareInstrumentations(self, value: Iterable[Instrumentation]) -> None: ...
    instrumentWithHardwareCycleCounter: bool
    kahnTieBreaker: str
    logDir: str
    @property
    def lstmOptions(self) -> dict[str, str]: ...
    @lstmOptions.setter
    def lstmOptions(self, value: Mapping[str, str]) -> None: ...
    @property
    def matmulOptions(self) -> dict[str, str]: ...
    @matmulOptions.setter
    def matmulOptions(self, value: Mapping[str, str]) -> None: ...
    meanAccumulationAndReplicationReductionStrategy: MeanReductionStrategy
    mergeVarUpdate: MergeVarUpdateType
    mergeVarUpdateMemThreshold: int
    numIOTiles: int
    optimizerStateTensorLocationSettings: TensorLocationSettings
    opxAliasChecking: bool
    opxModifyChecking: bool
    outlineSequenceBreakCost: float
    outlineThreshold: float
    partialsTypeMatMuls: str
    @property
    def prefetchBufferingDepthMap(self) -> dict[str, int]: ...
    @prefetchBufferingDepthMap.setter
    def prefetchBufferingDepthMap(self, value: Mapping[str, int]) -> None: ...
    rearrangeAnchorsOnHost: bool
    rearrangeStreamsOnHost: bool
    replicatedCollectivesSettings: ReplicatedCollectivesSettings
    replicatedGraphCount: int
    @property
    def reportOptions(self) -> dict[str, str]: ...
    @reportOptions.setter
    def reportOptions(self, value: Mapping[str, str]) -> None: ...
    scheduleNonWeightUpdateGradientConsumersEarly: bool
    separateCallOpPdfs: bool
    serializedPoprithmsAnnealGraphsDir: str
    serializedPoprithmsShiftGraphsDir: str
    stashAllTensorsInferencePipeline: bool
    strictOpVersions: bool
    subgraphCopyingStrategy: SubgraphCopyingStrategy
    swapLimitScheduler: int
    syntheticDataMode: SyntheticDataMode
    @property
    def tensorLocationSettingsOverride(self) -> dict[str, TensorLocation]: ...
    @tensorLocationSettingsOverride.setter
    def tensorLocationSettingsOverride(self, value: Mapping[str, TensorLocation | Location]) -> None: ...
    throwIfLog2ScaleTensorNotInRange: bool
    throw_if_log2_scale_tensor_not_in_range: bool
    timeLimitScheduler: float
    transitiveClosureOptimizationThreshold: int
    @property
    def updatableNamedBuffers(self) -> list[str]: ...
    @updatableNamedBuffers.setter
    def updatableNamedBuffers(self, value: Iterable[str]) -> None: ...
    useHostCopyOps: bool
    useLoopCandidateCreator: bool
    virtualGraphMode: VirtualGraphMode
    @property
    def virtualGraphSplitRatios(self) -> list[float]: ...
    @virtualGraphSplitRatios.setter
    def virtualGraphSplitRatios(self, value: Iterable[float]) -> None: ...
    weightTensorLocationSettings: TensorLocationSettings
