"""Options of the readers of steps, by framework: keywords of ``popsr.prove`` for type checkers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, Required, TypedDict

from popsr._program.ir import Ir
from popsr.replicas import ReplicaGrouping

__all__ = [
    "Graph",
    "GraphOptions",
    "JaxOptions",
    "JaxReading",
    "Model",
    "ModelOptions",
    "Read",
    "TorchOptions",
    "TorchReading",
]

Unsupported = Literal["error", "conservative"]


class _AllSteps(TypedDict, total=False):
    """Options of every step; see ``popsr.prove``."""

    stochastic_rounding: bool


class JaxReading(_AllSteps, total=False):
    """Options of a function of JAX; see ``popsr.bridge.jax.from_jax``."""

    mesh: Any
    in_specs: Any
    out_specs: Any
    check_vma: bool
    replicas: int | None
    axis_name: str | None
    in_axes: Any
    names: Sequence[str] | None
    roles: Mapping[str, Literal["state", "data", "constant"]] | None
    updates: Mapping[int, int] | None
    replicated: Sequence[str]
    unsupported: Unsupported
    opaque: Mapping[str, str] | None


class JaxOptions(JaxReading, total=False):
    """Options of a proof of it; see ``popsr.prove``."""

    like: Any
    exact: bool


class _Torch(_AllSteps, total=False):
    """Options of every step of PyTorch."""

    replicas: Required[int]
    groups: Mapping[str, Any] | None
    equal: Iterable[str]
    process_groups: Mapping[str, Any] | None
    unsupported: Unsupported


class TorchReading(_Torch, total=False):
    """Options of a training step of PyTorch; see ``popsr.bridge.torch.trace_step``."""

    ranks: Literal["all", "first"]
    cuts: Mapping[str, Any] | None


class TorchOptions(TorchReading, total=False):
    """Options of a proof of it; see ``popsr.prove``."""

    like: Any
    exact: bool


class GraphOptions(_Torch, total=False):
    """Options of a program of ``torch.export`` or a graph module; see ``popsr.bridge.torch.from_fx``."""

    states: Mapping[str, int] | None


class ModelOptions(_AllSteps, total=False):
    """Options of a model of ONNX; see ``popsr.bridge.onnx.load``."""

    replicas: int
    shapes: Mapping[str, int | Iterable[int]] | None
    values: Mapping[str, Any] | None
    weights: Literal["variables", "constants"]
    trainable: Iterable[str] | None
    external_data: bool
    streams: bool
    unroll: bool | None
    groups: Mapping[str, ReplicaGrouping] | None


class Read(Protocol):
    """Protocol of what is read already: a ``BridgedStep``, or a model that ``popsr.bridge.onnx.load`` read."""

    @property
    def ir(self) -> Ir:
        """The program."""


class Graph(Protocol):
    """Protocol of a program of ``torch.export`` or a graph module."""

    @property
    def graph(self) -> Any:
        """The graph of ATen ops."""


class Model(Protocol):
    """Protocol of a ``ModelProto`` of ONNX."""

    @property
    def opset_import(self) -> Any:
        """The sets of ops that it uses."""
