"""Rules of the domain ``com.microsoft``: what onnxruntime's quantiser writes, and ops that it fuses."""

from popsr._support.lazy import names_only
from popsr.bridge.onnx.ops.microsoft import (  # noqa: F401  they register their rules
    _attention,
    _fused,
    _quantised,
    _weights,
)

__all__: list[str] = []

__dir__ = names_only(__all__)
