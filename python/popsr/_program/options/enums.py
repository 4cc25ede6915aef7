"""PopART's enumerations of session options."""

from __future__ import annotations

from popsr._support.host.choices import Choices

__all__ = [
    "AccumulateOuterFragmentSchedule",
    "AutodiffStitchStrategy",
    "BatchSerializationBatchSchedule",
    "BatchSerializationMethod",
    "BatchSerializationTransformContext",
    "ExecutionPhaseIOSchedule",
    "ExecutionPhaseSchedule",
    "GradientTensorTrackingMethod",
    "Instrumentation",
    "MeanReductionStrategy",
    "MergeVarUpdateType",
    "RecomputationType",
    "ReductionType",
    "SubgraphCopyingStrategy",
    "SyntheticDataMode",
    "VirtualGraphMode",
]


class AccumulateOuterFragmentSchedule(Choices):
    """Order of the ops outside a gradient accumulation loop."""

    Scheduler = 0
    Serial = 1
    OverlapCycleOptimized = 2
    OverlapMemoryOptimized = 3


class AutodiffStitchStrategy(Choices):
    """Source of forward values in a gradient graph."""

    RecomputeMinimal = 0
    RecomputeAllNonInputs = 1
    AddFwdOutputs = 2
    SafeAddFwdOutputs = 3


class BatchSerializationBatchSchedule(Choices):
    """Order of the elements of a serialised batch."""

    Scheduler = 0
    Isomorphic = 1
    OverlapOnIo = 2
    OverlapOnCompute = 3


class BatchSerializationMethod(Choices):
    """Iteration over the serialised batch."""

    UnrollDynamic = 0
    UnrollStatic = 1
    Loop = 2


class BatchSerializationTransformContext(Choices):
    """The passes that are serialised."""

    Fwd = 0
    Bwd = 1


class ExecutionPhaseIOSchedule(Choices):
    """Time at which the tensors of an execution phase are loaded."""

    Preload = 0
    OnDemand = 1


class ExecutionPhaseSchedule(Choices):
    """Order of loads, stores and compute of an execution phase."""

    Interleaving = 0
    Batch = 1
    BatchClusteredIO = 2


class GradientTensorTrackingMethod(Choices):
    """The gradients whose statistics automatic loss scaling gathers."""

    AllNonViewChangingGradientTensors = 0
    ConvAndMatmulGradients = 1
    GradientsOfUserSpecifiedTensors = 2


class Instrumentation(Choices):
    """The parts of a program that are timed."""

    Outer = 0
    Inner = 1


class MeanReductionStrategy(Choices):
    """Time at which the mean of accumulated gradients is taken."""

    Running = 0
    Post = 1


class MergeVarUpdateType(Choices):
    """The updates of variables that are merged."""

    Off = 0
    All = 1
    AutoLoose = 2
    AutoTight = 3


class RecomputationType(Choices):
    """The activations that are computed again for the backward pass."""

    NoRecompute = 0
    Standard = 1
    NormOnly = 2
    Pipeline = 3
    RecomputeAll = 4


class ReductionType(Choices):
    """Reduction of a loss or a gradient."""

    Sum = 0
    Mean = 1
    NoReduction = 2


class SubgraphCopyingStrategy(Choices):
    """Time at which inputs and outputs of a called graph are copied."""

    OnEnterAndExit = 0
    JustInTime = 1


class SyntheticDataMode(Choices):
    """Data of streams to the device: the caller's, zeros, or random numbers."""

    Off = 0
    Zeros = 1
    RandomNormal = 2
    RandomUniform = 3


class VirtualGraphMode(Choices):
    """Placement of ops on the IPUs of a replica."""

    Off = 0
    Manual = 1
    Auto = 2
    Pipeline = 3
    ExecutionPhases = 4
