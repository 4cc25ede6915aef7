"""Enumerations of op attributes, prefixes of the tensors that a training session makes, and the version."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from popsr._core import __version__
from popsr._support.host.arguments import read_path, read_text
from popsr._support.host.choices import Choices

__all__ = [
    "CollectiveOperator",
    "InitType",
    "RecomputeType",
    "ScatterReduction",
    "TensorId",
    "TensorRemapType",
    "VersionNumber",
    "closePoplarDebugInfo",
    "initializePoplarDebugInfo",
    "reservedAccl1Prefix",
    "reservedAccl2Prefix",
    "reservedAccl3Prefix",
    "reservedAcclPrefix",
    "reservedAccumPrefix",
    "reservedGradientPrefix",
    "reservedLossScalingPrefix",
    "reservedStepPrefix",
    "reservedUpdatedVarPrefix",
    "versionNumber",
    "versionString",
]


TensorId = str
"""Ids of tensors are plain texts."""


class CollectiveOperator(Choices):
    """Reduction of a collective; Local leaves each replica its own value."""

    Add = 0
    Mean = 1
    Mul = 2
    Min = 3
    Max = 4
    LogicalAnd = 5
    LogicalOr = 6
    SquareAdd = 7
    Local = 8


class ScatterReduction(Choices):
    """Reduction of elements that are scattered to one place; ``None_`` keeps the last one."""

    Sum = 0
    Max = 1
    Min = 2
    Mul = 3
    None_ = 4


class InitType(Choices):
    """Contents of a new tensor."""

    NoInit = 0
    Zero = 1


class RecomputeType(Choices):
    """Recomputation of an output in the backward pass."""

    Undefined = 0
    Checkpoint = 1
    Recompute = 2
    Recomputed = 3


class TensorRemapType(Choices):
    """Passes in which a tensor gets another layout; no value depends on it."""

    FwdBwdReverse = 0
    FwdBwd = 1
    Fwd = 2


def _prefix(word: str, what: str) -> Callable[[], str]:
    def prefix() -> str:
        return word

    prefix.__doc__ = f"Prefix of ids of {what}."
    return prefix


reservedGradientPrefix = _prefix("Gradient___", "gradients")
reservedUpdatedVarPrefix = _prefix("UpdatedVar___", "weights after their update")
reservedAccumPrefix = _prefix("Accum___", "gradients that are summed over micro batches and replicas")
reservedAcclPrefix = _prefix("Accl___", "the momentum of SGD")
reservedAccl1Prefix = _prefix("Accl1___", "first states of Adam and its kin")
reservedAccl2Prefix = _prefix("Accl2___", "second states of Adam and its kin")
reservedAccl3Prefix = _prefix("Accl3___", "third states of adaptive optimisers")
reservedStepPrefix = _prefix("Step___", "the counts of steps")
reservedLossScalingPrefix = _prefix("lossScaling___", "the scale of the loss")


class VersionNumber(NamedTuple):
    """A version."""

    major: int
    minor: int
    point: int


def versionNumber() -> VersionNumber:
    """PopART's version."""
    return VersionNumber(3, 4, 0)


def versionString() -> str:
    """PopART's version, and popsr's."""
    return f"{'.'.join(map(str, versionNumber()))} (popsr {__version__})"


def initializePoplarDebugInfo(fileName: str | os.PathLike[str], format: str = "cbor") -> bool:
    """Accepted: no file is written, as there is no device whose events it would name. Returns False."""
    read_path("initializePoplarDebugInfo", fileName)
    read_text("initializePoplarDebugInfo: format", format)
    return False


def closePoplarDebugInfo() -> bool:
    """Accepted, as ``initializePoplarDebugInfo``. Returns False."""
    return False
