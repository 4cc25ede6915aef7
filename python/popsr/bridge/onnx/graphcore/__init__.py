"""Rules of the domain ai.graphcore, PopART's own ops."""

from popsr._lazy import names_only
from popsr.bridge.onnx.graphcore import _basic, _neural
from popsr.bridge.onnx.graphcore._basic import DOMAIN

__all__ = ["DOMAIN"]

_FAMILIES = (_basic, _neural)  # register their rules

__dir__ = names_only(__all__)
