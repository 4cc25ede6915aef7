"""Rules of the domain ``ai.onnx.ml``: what scikit-learn and libraries of boosted trees export."""

from popsr._support.lazy import names_only
from popsr.bridge.onnx.ops.classic import (  # noqa: F401  they register their rules
    _encoders,
    _linear,
    _trees,
)

__all__: list[str] = []

__dir__ = names_only(__all__)
