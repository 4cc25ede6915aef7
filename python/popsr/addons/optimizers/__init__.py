"""Optimisers: modules that update a variable."""

from popsr._lazy import names_only
from popsr._text.entry_points import add_entry_points
from popsr.addons.optimizers.adam import AdamOptimizerStep

__all__ = ["AdamOptimizerStep"]

__dir__ = names_only(__all__)
add_entry_points(__name__)
