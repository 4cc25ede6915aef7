"""All steps of JAX with their planted bugs."""

from __future__ import annotations

from typing import get_args

from tests_py.bridge.same.planted import jax_data, jax_more, jax_sequence, jax_shards, jax_stages, jax_tensor
from tests_py.bridge.same.planted.cases import Bug, Kind, Right

__all__ = ["BUGS", "BY_NAME", "ONE_OF_EACH_KIND", "STEPS"]

STEPS: tuple[Right, ...] = (
    *jax_data.STEPS,
    *jax_tensor.STEPS,
    *jax_sequence.STEPS,
    *jax_stages.STEPS,
    *jax_shards.STEPS,
    *jax_more.STEPS,
)
BY_NAME = {right.name: right for right in STEPS}
BUGS: tuple[tuple[Right, Bug], ...] = tuple((right, bug) for right in STEPS for bug in right.bugs)
ONE_OF_EACH_KIND = tuple(
    next(pair for pair in reversed(BUGS) if pair[1].kind == kind) for kind in get_args(Kind)
)
