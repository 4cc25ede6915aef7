"""A bf16 weight of 1 and a thousand updates of 0.001: to nearest nothing happens. Needs popsr[examples]."""

import sys

import matplotlib as mpl
import ml_dtypes
import numpy as np

import popsr

mpl.use("Agg")
from matplotlib import pyplot as plt

figure = sys.argv[1] if len(sys.argv) > 1 else "sr_small_updates.png"
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
weights = 2000

update = np.float32(0.001).astype(ml_dtypes.bfloat16)
key = popsr.sr.Key(0).fold_in("w")
modes: dict[popsr.sr.Mode, str] = {
    "rn": "to nearest",
    "sr": "stochastic",
    "sr_equal": "either neighbour, equal chance",
}
paths = {}
for mode in modes:
    w = np.ones(weights, ml_dtypes.bfloat16)
    rows = [w.astype(np.float64)]
    for step in range(steps):
        popsr.sr.add_(w, update, key=key.at(step), mode=mode)
        rows.append(w.astype(np.float64))
    paths[mode] = np.array(rows)
    print(f"{modes[mode]:32} mean {rows[-1].mean():.4f}, standard deviation {rows[-1].std():.4f}")
exact = 1 + steps * float(update)
print(f"{'exact':32} mean {exact:.4f}")

fig, axis = plt.subplots(figsize=(6, 4))
for mode, label in list(modes.items())[:2]:
    axis.plot(paths[mode].mean(1), label=f"{label}: mean of {weights} weights")
axis.plot(paths["sr"][:, :5], lw=0.6, color="0.6")
axis.plot([0, steps], [1, exact], "k--", label="exact")
axis.set(xlabel="updates of 0.001", ylabel="bf16 weight")
axis.legend()
fig.savefig(figure, dpi=120, bbox_inches="tight")
