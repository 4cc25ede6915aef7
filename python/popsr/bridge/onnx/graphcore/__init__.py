"""Rules of the domain ai.graphcore, PopART's own ops."""

from popsr._support.lazy import names_only
from popsr.bridge.onnx.graphcore import _basic, _neural  # noqa: F401  they register their rules
from popsr.bridge.onnx.graphcore._basic import DOMAIN

__all__ = ["DOMAIN"]

__dir__ = names_only(__all__)
