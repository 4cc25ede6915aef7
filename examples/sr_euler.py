"""Euler's method for y' = -y / 20 on [0, 1/64]: with small steps, rounding to nearest never moves.

Needs popsr[examples].
"""

import math
import sys

import matplotlib as mpl
import numpy as np

import popsr

mpl.use("Agg")
from matplotlib import pyplot as plt

figure = sys.argv[1] if len(sys.argv) > 1 else "sr_euler.png"
most = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
runs = 400

exact = math.exp(-1 / 1280)
key = popsr.sr.Key(0)
counts = [n for n in (10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000) if n <= most]
errors = {}
for name in ("bfloat16", "float16"):
    for mode in ("rn", "sr"):
        for n in counts:
            y = popsr.sr.cast(np.ones(runs if mode == "sr" else 1), name, key=key)
            # y + h f(y) = (-h/20) y + y, rounded once.
            for step in range(n):
                popsr.sr.axpy_(-1 / 64 / n / 20, y, y, key=key.fold_in(n).at(step), mode=mode)
            y = y.astype(np.float64)
            errors[name, mode, n] = abs(y.mean() - exact), np.abs(y - exact).mean()
        of_mean, of_one = errors[name, mode, counts[-1]]
        print(
            f"{name:9} {mode}: {counts[-1]} steps, error of the mean {of_mean:.1e}, of one run {of_one:.1e}"
        )

fig, axis = plt.subplots(figsize=(6, 4))
for (name, mode), style in zip(
    (("bfloat16", "rn"), ("float16", "rn"), ("bfloat16", "sr"), ("float16", "sr")), "v^os", strict=True
):
    label = f"{name}, {'to nearest' if mode == 'rn' else f'stochastic, mean of {runs}'}"
    axis.loglog(counts, [errors[name, mode, n][0] for n in counts], f"{style}-", label=label)
axis.set(xlabel="steps", ylabel="error of y(1/64)")
axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15))
fig.savefig(figure, dpi=120, bbox_inches="tight")
