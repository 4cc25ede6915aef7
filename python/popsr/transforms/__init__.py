"""Transforms of programs."""

from typing import TYPE_CHECKING

from popsr._support.lazy import names_only
from popsr._support.text.suggestions import unknown_attribute
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

if not TYPE_CHECKING:
    __getattr__ = unknown_attribute(__name__, __all__)
    __dir__ = names_only(__all__)
