"""The guard of jobs of JAX."""

from typing import TYPE_CHECKING

from popsr._support.lazy import names_only
from popsr._support.text.suggestions import unknown_attribute
from popsr.guard.jax._arrays import check
from popsr.guard.jax._hash import array_hash
from popsr.guard.jax._inside import assert_replicated, checked

__all__ = ["array_hash", "assert_replicated", "check", "checked"]

if not TYPE_CHECKING:
    __getattr__ = unknown_attribute(__name__, __all__)

__dir__ = names_only(__all__)
