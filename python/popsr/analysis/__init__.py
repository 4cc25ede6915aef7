"""The partition of the replicas into those that agree on a tensor, proved for all inputs."""

from typing import TYPE_CHECKING

from popsr._support.lazy import names_only
from popsr._support.text.suggestions import unknown_attribute
from popsr.analysis._communication import Communication, Exchange, Traffic, communication
from popsr.analysis._drift import DriftingVariable
from popsr.analysis._explanation import Explanation, ExplanationRoot, ExplanationStep, Lint
from popsr.analysis._partition import (
    CallContext,
    PartitionAnalysis,
    analyze,
)
from popsr.analysis._popart_mode import PopartAnalysis
from popsr.analysis._sharding import ShardingPicture, visualize_sharding

__all__ = [
    "CallContext",
    "Communication",
    "DriftingVariable",
    "Exchange",
    "Explanation",
    "ExplanationRoot",
    "ExplanationStep",
    "Lint",
    "PartitionAnalysis",
    "PopartAnalysis",
    "ShardingPicture",
    "Traffic",
    "analyze",
    "communication",
    "visualize_sharding",
]

if not TYPE_CHECKING:
    __getattr__ = unknown_attribute(__name__, __all__)

__dir__ = names_only(__all__)
