"""As `sharded.py`, but that the gradient of one weight is not averaged."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P


def loss_of(weights, x, y):
    """The mean of squares over a device's part of the batch."""
    return jnp.mean((x @ weights["kernel"] + weights["bias"] - y) ** 2)


def step(weights, x, y):
    """One step of a device on its part of the batch."""
    gradients = jax.grad(loss_of)(weights, x, y)
    kernel = lax.pmean(gradients["kernel"], "data")
    bias = gradients["bias"]
    return {"kernel": weights["kernel"] - 0.1 * kernel, "bias": weights["bias"] - 0.1 * bias}


# Read by `python -m popsr prove training/sharded_wrong.py::step`.
step_args = (
    {"kernel": np.ones((8, 1), np.float32), "bias": np.zeros(1, np.float32)},
    np.ones((16, 8), np.float32),
    np.ones((16, 1), np.float32),
)
step_options = {
    "mesh": {"data": 4},
    "in_specs": (P(), P("data"), P("data")),
    "out_specs": P(),
    "check_vma": False,
}
