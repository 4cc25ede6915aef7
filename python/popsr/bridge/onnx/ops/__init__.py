"""Rules of ONNX's own ops by kind; importing it registers them."""

from popsr._support.lazy import names_only
from popsr.bridge.onnx.ops import classic, control, elementwise, microsoft, neural, shape

__all__ = ["classic", "control", "elementwise", "microsoft", "neural", "shape"]

__dir__ = names_only(__all__)
