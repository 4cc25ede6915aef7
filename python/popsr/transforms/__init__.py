"""Transforms of programs."""

from popsr.transforms.autodiff import (
    ExpectedConnection,
    ExpectedConnectionType,
    GradGraphInfo,
    autodiff,
)
from popsr.transforms.stochastic_rounding import stochastic_rounding

__all__ = [
    "ExpectedConnection",
    "ExpectedConnectionType",
    "GradGraphInfo",
    "autodiff",
    "stochastic_rounding",
]
