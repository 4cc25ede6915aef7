"""Optimisers: modules that update a variable."""

from popsr._support.lazy import names_only
from popsr.addons.optimizers.adam import AdamOptimizerStep
from popsr.addons.optimizers.lamb import LambOptimizerStep
from popsr.addons.optimizers.lion import LionOptimizerStep
from popsr.addons.optimizers.sgd import SGDOptimizerStep

__all__ = ["AdamOptimizerStep", "LambOptimizerStep", "LionOptimizerStep", "SGDOptimizerStep"]

__dir__ = names_only(__all__)
