"""Least squares by stochastic gradient descent with bf16 weights: four ways to round the update.

Needs popsr[examples].
"""

import sys

import matplotlib as mpl
import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike

import popsr

mpl.use("Agg")
from matplotlib import pyplot as plt

figure = sys.argv[1] if len(sys.argv) > 1 else "sr_least_squares.png"
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 30_000
dimensions, samples, runs = 10, 1000, 8

rng = np.random.default_rng(0)
truth = rng.uniform(0, 100, dimensions).astype(np.float32)
x = rng.standard_normal((samples, dimensions)).astype(np.float32)
y = x @ truth + rng.normal(0, 0.5, samples).astype(np.float32)
key = popsr.sr.Key(0).fold_in("w")


def train(dtype: DTypeLike, mode: popsr.sr.Mode, rate: float) -> list[float]:
    """Losses of ``runs`` weights at once, each with its own order of samples."""
    w = np.zeros((runs, dimensions), dtype)
    order = np.random.default_rng(1).integers(samples, size=(steps, runs))
    losses = []
    for step, rows in enumerate(order):
        residual = np.einsum("rd,rd->r", x[rows], w.astype(np.float32)) - y[rows]
        popsr.sr.add_(w, residual[:, None] * x[rows], alpha=-rate, key=key.at(step), mode=mode)
        if step % (steps // 100) == 0 or step == steps - 1:
            losses.append(np.mean((x @ w.astype(np.float32).T - y[:, None]) ** 2) / 2)
    return losses


ways: dict[str, tuple[DTypeLike, popsr.sr.Mode]] = {
    "fp32, to nearest": (np.float32, "rn"),
    "bf16, to nearest": (ml_dtypes.bfloat16, "rn"),
    "bf16, equal chances": (ml_dtypes.bfloat16, "sr_equal"),
    "bf16, stochastic": (ml_dtypes.bfloat16, "sr"),
}
fig, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
for axis, rate in zip(axes, (0.01, 0.001), strict=True):
    for name, (dtype, mode) in ways.items():
        losses = train(dtype, mode, rate)
        print(f"rate {rate}: {name:22} loss {losses[-1]:10.3f}")
        axis.plot(np.linspace(0, steps, len(losses)), losses, label=name)
    axis.set(yscale="log", xlabel="steps", title=f"rate {rate}")
axes[0].set_ylabel("loss")
axes[0].legend()
fig.savefig(figure, dpi=120, bbox_inches="tight")
