"""Rules of branches, loops and sequences, and of the updates of optimisers."""

from popsr._support.lazy import names_only
from popsr.bridge.onnx.ops.control import _control, _sequences, _training  # noqa: F401  they register their rules

__all__: list[str] = []

__dir__ = names_only(__all__)
