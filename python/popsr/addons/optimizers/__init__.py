"""Optimisers: modules that update a variable."""

from popsr.addons.optimizers.adam import AdamOptimizerStep

__all__ = ["AdamOptimizerStep"]
