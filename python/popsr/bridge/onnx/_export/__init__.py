"""Writing a graph as a model of ONNX: ``_write`` walks it, ``_rules`` has the node of each op."""

from popsr._support.lazy import names_only
from popsr.bridge.onnx._export._write import export

__all__ = ["export"]

__dir__ = names_only(__all__)
