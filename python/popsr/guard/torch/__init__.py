"""The guard of training jobs of PyTorch."""

from typing import TYPE_CHECKING

from popsr._support.lazy import names_only
from popsr._support.text.suggestions import unknown_attribute
from popsr.guard.torch._guard import Guard, guard
from popsr.guard.torch._hash import tensor_hash

__all__ = ["Guard", "guard", "tensor_hash"]

if not TYPE_CHECKING:
    __getattr__ = unknown_attribute(__name__, __all__)

__dir__ = names_only(__all__)
