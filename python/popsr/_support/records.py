"""Records of the compiled core: NamedTuples with typed fields, and dicts with known keys.

Graphs, tensors, ops, streams and remote buffers are the core's numbers. Dtypes are their names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

if TYPE_CHECKING:
    import numpy as np

    from popsr._core import Partition, ReplicaGrouping

__all__ = [
    "ArenaValue",
    "AttributeSchema",
    "Connection",
    "ContextInfo",
    "DTypeInfo",
    "DevicePlacement",
    "Divergence",
    "ElementwiseSchema",
    "Emitted",
    "ExplanationStep",
    "FormatInfo",
    "GradGraph",
    "InputSchema",
    "LintInfo",
    "MemoryStep",
    "MemoryTimeline",
    "MissingSumInfo",
    "NewTensor",
    "OpSchema",
    "Outlined",
    "PlannedExchange",
    "PopartValue",
    "ProfiledInstruction",
    "RemoteBufferInfo",
    "SessionMemory",
    "SessionStats",
    "StepKind",
    "StreamInfo",
    "TensorInfo",
    "TensorKind",
    "Value",
    "VariableHome",
    "VariableInfo",
]

Shape = tuple[int, ...]
TensorKind = Literal["activation", "input", "variable", "constant", "shard", "remote"]
StepKind = Literal["op", "write", "store", "call", "argument", "iteration", "run", "start"]


class NewTensor(NamedTuple):
    """An output of an op that was appended."""

    id: int
    name: str
    dtype: str
    shape: Shape
    meta_shape: Shape


class Emitted(NamedTuple):
    """An op that was appended, with its outputs."""

    op: int
    outputs: tuple[NewTensor, ...]


class TensorInfo(NamedTuple):
    """A tensor. ``storage``: the tensor whose memory it lives in. ``producer``: the op that makes it."""

    name: str
    graph: int
    dtype: str
    shape: Shape
    meta_shape: Shape
    kind: TensorKind
    by_ref: bool
    storage: int
    producer: int | None


class VariableInfo(NamedTuple):
    """Groups of a variable, and whether the host reads the values of all replicas."""

    grouping: ReplicaGrouping
    all_replicas: bool


class VariableHome(NamedTuple):
    """The shard or entry of a remote buffer that a variable lives in, and the replicas that share it."""

    tensor: int
    shard_over: int


class DevicePlacement(NamedTuple):
    """The device of a replica, and the kind of its tiles."""

    ipu: int
    tile_set: Literal["compute", "io"]


class StreamInfo(NamedTuple):
    """A stream between the host and the program."""

    name: str
    dtype: str
    shape: Shape
    to_device: bool
    mode: Literal["replicate", "broadcast", "equal"]


class RemoteBufferInfo(NamedTuple):
    """A remote buffer: its entries are of one type."""

    dtype: str
    shape: Shape
    entries: int
    meta_shape: Shape


class Outlined(NamedTuple):
    """A graph that was made of ops, the op that runs it, and the tensors that went into the graph."""

    body: int
    op: int
    moved: list[int]


class Connection(NamedTuple):
    """An input or output of a gradient graph: a tensor of the forward graph, or the gradient of one."""

    is_gradient: bool
    tensor: int


class GradGraph(NamedTuple):
    """A graph and its gradient graph."""

    forward: int
    gradient: int
    inputs: list[Connection]
    outputs: list[Connection]


class LintInfo(NamedTuple):
    """A lint with its place and its cost in units."""

    code: int
    op: int | None
    tensor: int | None
    location: str
    cost: int
    unit: str
    text: str


class Value(NamedTuple):
    """The fact of a tensor after an op, or at first (time -1)."""

    time: int
    op: int | None
    partition: Partition


class PopartValue(NamedTuple):
    """As ``Value``, of PopART's analysis: equal on all replicas or not."""

    time: int
    op: int | None
    is_equal: bool


class ContextInfo(NamedTuple):
    """A graph as one set of facts enters it: its calls from the main graph, and the replicas that run it together."""

    id: int
    calls: list[int]
    inputs: list[Partition]
    execution: Partition


class ExplanationStep(NamedTuple):
    """A step of an explanation: a tensor on two replicas, and the op that made or wrote it."""

    kind: StepKind
    tensor: int
    op: int | None
    location: str
    r: int
    s: int
    partition: Partition
    text: str


class Divergence(NamedTuple):
    """Two replicas that hold different values of a variable, and the first element that differs."""

    first: int
    second: int
    element: int


class PlannedExchange(NamedTuple):
    """An op for which values move between ranks: its first operand that moves, and the groups, where they decide.

    ``traffic`` has a row for each rank: bytes and messages that it sends in one execution, those that it receives, and
    the messages and bytes of these that cannot move at the same time.
    """

    op: int
    tensor: int | None
    groups: ReplicaGrouping | None
    value_bytes: int
    algorithm: Literal["blocks", "gather", "chain"]
    executions: int
    is_bound: bool
    traffic: np.ndarray[Any, np.dtype[np.uint64]]


class ProfiledInstruction(NamedTuple):
    """An instruction in all runs: nanoseconds, bytes of operands and results, and its ops with the blocks computed.

    A copy has no op.
    """

    name: str
    executions: int
    time: int
    bytes: int
    ops: list[tuple[int | None, int]]


class InputSchema(TypedDict):
    """An input of an op."""

    name: str
    dtypes: list[str]
    optional: bool
    influences: bool
    variadic: bool


class AttributeSchema(TypedDict):
    """An attribute of an op."""

    name: str
    type: str
    required: bool
    default: Any
    internal: bool
    choices: list[str]


class ElementwiseSchema(TypedDict):
    """The element-wise kernel that an op is."""

    name: str
    operands: int
    scalars: int
    flops: int


class MissingSumInfo(NamedTuple):
    """A gradient that is used as if it were whole, by numbers of ops and of its tensor; see missing_sum.h."""

    made: int
    gradient: int
    used: int | None
    nonlinear: int | None


class OpSchema(TypedDict):
    """An op as the registry declares it."""

    name: str
    inputs: list[InputSchema]
    attrs: list[AttributeSchema]
    internal: bool
    effects: list[tuple[int, int]]
    view: bool
    rounding: bool
    random: bool
    linear: bool
    moves: bool
    pointwise: bool
    has_grad: bool
    grad_throws: bool
    gradient: Literal["yes", "zeros", "error", "none"]
    differentiated: bool | list[int]
    partition: str
    exchange: bool
    observable: bool
    control: Literal["none", "call", "repeat", "conditional"]
    family: str
    elementwise: ElementwiseSchema | None
    flops: bool


class FormatInfo(TypedDict):
    """Bits and special codes of a float format."""

    exponent_bits: int
    mantissa_bits: int
    bias: int
    max_code: int
    inf_code: int
    nan_code: int
    negative_zero: bool
    greatest: float


class DTypeInfo(TypedDict):
    """An element type: NumPy's or ml_dtypes' type with arithmetic, bytes, and the format of floats."""

    array: str
    size: int
    format: FormatInfo | None


class SessionStats(TypedDict):
    """Counts of a session since it was made, of kernels and blocks by op."""

    runs: int
    kernel_calls: dict[str, int]
    blocks: dict[str, int]


class MemoryStep(NamedTuple):
    """A step of a plan: its op, the bytes of the arena that hold values, and the end of the last of them."""

    op: int | None
    live: int
    extent: int


class ArenaValue(NamedTuple):
    """A value in the arena, from step ``first`` to step ``last``, by the first tensor that lives there."""

    tensor: int
    offset: int
    bytes: int
    first: int
    last: int


class MemoryTimeline(NamedTuple):
    """Steps of a plan, the values in its arena, its size, and bytes that instructions keep besides."""

    steps: list[MemoryStep]
    values: list[ArenaValue]
    arena: int
    temporaries: int


class SessionMemory(TypedDict):
    """Bytes of a session."""

    variables: int
    constants: int
    activations: int
    streams: int
