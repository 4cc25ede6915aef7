"""Writing a graph as a model of ONNX: ``_write`` walks it, ``_rules`` has the node of each op."""

from popsr.bridge.onnx._export._write import export

__all__ = ["export"]
