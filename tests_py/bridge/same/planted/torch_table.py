"""All steps of PyTorch with their planted bugs."""

from __future__ import annotations

from tests_py.bridge.same.planted import torch_data, torch_schedules, torch_stages, torch_tensor
from tests_py.bridge.same.planted.cases import Bug, Right

__all__ = ["BUGS", "STEPS"]

STEPS: tuple[Right, ...] = (
    *torch_data.STEPS,
    *torch_tensor.STEPS,
    *torch_stages.STEPS,
    *torch_schedules.STEPS,
)
BUGS: tuple[tuple[Right, Bug], ...] = tuple((right, bug) for right in STEPS for bug in right.bugs)
