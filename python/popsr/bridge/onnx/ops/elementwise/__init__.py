"""Rules of element-wise ops and logic."""

from popsr._support.lazy import names_only
from popsr.bridge.onnx.ops.elementwise import _elementwise  # noqa: F401  they register their rules

__all__: list[str] = []

__dir__ = names_only(__all__)
