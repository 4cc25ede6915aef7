"""Random numbers, and the seeds that they are drawn by."""

from popsr._support.lazy import names_only
from popsr.ops.random.random import random_normal, random_uniform

__all__ = ["random_normal", "random_uniform"]

__dir__ = names_only(__all__)
