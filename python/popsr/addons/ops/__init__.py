"""Functions that make several ops."""

from popsr.addons.ops.cross_entropy import cross_entropy, cross_entropy_with_grad

__all__ = ["cross_entropy", "cross_entropy_with_grad"]
