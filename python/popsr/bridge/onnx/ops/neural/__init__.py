"""Rules of neural networks: products, norms, losses, convolutions, recurrent layers, transforms."""

from popsr._support.lazy import names_only
from popsr.bridge.onnx.ops.neural import (  # noqa: F401  they register their rules
    _attention,
    _convolutions,
    _einsum,
    _neural,
    _quantise,
    _random,
    _recurrent,
    _removed,
    _resize,
    _samples,
    _signal,
)

__all__: list[str] = []

__dir__ = names_only(__all__)
