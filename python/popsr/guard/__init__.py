"""Live checks of training jobs: the values that ranks or devices hold in common are compared by hashes as they train.

``popsr.guard.torch`` watches jobs of PyTorch, ``popsr.guard.jax`` arrays of JAX, inside ``shard_map`` and outside.
Both raise :class:`DriftError`. Hashes that differ prove that bytes differ; hashes that agree are evidence that they are
equal, with the odds that ``docs/guard.md`` states, and nothing more.
"""

from typing import TYPE_CHECKING

from popsr._support.lazy import lazy_attributes, names_only
from popsr._support.text.entry_points import public
from popsr._support.text.suggestions import unknown_attribute
from popsr.errors import DriftError
from popsr.guard._finding import Checked, Finding, Replayed

__all__ = ["Checked", "DriftError", "Finding", "Replayed"]

if not TYPE_CHECKING:
    __getattr__ = public(
        lazy_attributes(
            __name__,
            ("jax", "lightning", "log", "torch", "torchtitan", "transformers"),
            {},
            unknown_attribute(__name__, __all__),
        )
    )

__dir__ = names_only(__all__)
