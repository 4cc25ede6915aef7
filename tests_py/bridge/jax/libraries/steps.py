"""Data and meshes of the steps of this folder: four replicas that cut their data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
from jax import lax
from jax.sharding import PartitionSpec as P

__all__ = ["DATA", "MAPPED", "OPTIMISER", "X", "Y", "averaged", "mesh"]

X = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
Y = np.random.default_rng(1).normal(size=(8, 2)).astype(np.float32)
DATA = (P("data"), P("data"))
MAPPED: dict[str, Any] = {"mesh": {"data": 4}, "out_specs": P(), "check_vma": False}
OPTIMISER = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(1e-3, 10)))


def mesh() -> Any:
    return jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))


def averaged(grads: Any, which: Callable[[str], bool] = lambda path: True) -> Any:
    """Means over the replicas of the gradients whose paths are chosen."""
    tree = jax.tree_util
    return tree.tree_map_with_path(lambda at, g: lax.pmean(g, "data") if which(tree.keystr(at)) else g, grads)
