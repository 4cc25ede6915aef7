"""Random numbers, and the seeds that they are drawn by."""

from popsr.ops.random.random import random_normal, random_uniform

__all__ = ["random_normal", "random_uniform"]
