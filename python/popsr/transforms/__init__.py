"""Transforms of programs."""

from popsr.transforms.autodiff import (
    ExpectedConnection,
    ExpectedConnectionType,
    GradGraphInfo,
    autodiff,
)
from popsr.transforms.decompose_sum import decompose_sum
from popsr.transforms.merge import io_tile_exchange, merge_collectives, merge_exchange
from popsr.transforms.stochastic_rounding import stochastic_rounding

__all__ = [
    "ExpectedConnection",
    "ExpectedConnectionType",
    "GradGraphInfo",
    "autodiff",
    "decompose_sum",
    "io_tile_exchange",
    "merge_collectives",
    "merge_exchange",
    "stochastic_rounding",
]
