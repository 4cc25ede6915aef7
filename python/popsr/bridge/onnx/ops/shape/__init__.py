"""Rules of shapes, indices, order and reductions."""

from popsr._support.lazy import names_only
from popsr.bridge.onnx.ops.shape import _indexing, _reduce, _shape  # noqa: F401  they register their rules

__all__: list[str] = []

__dir__ = names_only(__all__)
