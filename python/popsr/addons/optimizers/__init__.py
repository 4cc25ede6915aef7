"""Optimisers: modules that update a variable."""

from popsr._lazy import names_only
from popsr.addons.optimizers.adam import AdamOptimizerStep

__all__ = ["AdamOptimizerStep"]

__dir__ = names_only(__all__)
