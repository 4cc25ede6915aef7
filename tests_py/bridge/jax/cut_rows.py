"""Values and options of steps that cut the rows of ``x`` over four replicas."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.sharding import PartitionSpec as P

__all__ = ["CUT", "W", "X"]

W, X = np.ones((4, 4), np.float32), np.arange(32, dtype=np.float32).reshape(8, 4)
CUT: dict[str, Any] = {
    "mesh": {"data": 4},
    "in_specs": (P(), P("data")),
    "out_specs": (P(), P()),
    "check_vma": False,
}
