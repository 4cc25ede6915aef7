"""The harmonic series in low precision: to nearest it stops, stochastically it goes on. Needs popsr[examples]."""

import sys

import matplotlib as mpl
import numpy as np

import popsr

mpl.use("Agg")
from matplotlib import pyplot as plt

figure = sys.argv[1] if len(sys.argv) > 1 else "sr_harmonic.png"
terms = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
runs = 20

marks = np.unique(np.geomspace(1, terms, 200).astype(int))
exact = np.cumsum(1 / np.arange(1, terms + 1))
key = popsr.sr.Key(0)
nearest, stochastic = {}, {}
for name in ("bfloat16", "float16"):
    sums = popsr.sr.cast(np.zeros(1 + runs), name, key=key)  # the first one is rounded to nearest
    rows = []
    for i in range(1, terms + 1):
        # 1 / i is rounded to the format, as a program would have it that knows no wider one.
        term = popsr.sr.cast(1 / i, name, key=key, mode="rn")
        popsr.sr.add_(sums[:1], term, key=key, mode="rn")
        popsr.sr.add_(sums[1:], term, key=key.fold_in(name).at(i))
        if i in marks:
            rows.append(sums.astype(np.float64))
    nearest[name] = np.array(rows)[:, 0]
    stochastic[name] = np.array(rows)[:, 1:]
    mean = stochastic[name][-1].mean()
    print(f"{name:9} after {terms} terms: to nearest {nearest[name][-1]:.4f}, mean of {runs} runs {mean:.4f}")
print(f"exact {exact[-1]:.4f}")

fig, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
for axis, name in zip(axes, nearest, strict=True):
    axis.plot(marks, exact[marks - 1], "k--", label="exact")
    axis.plot(marks, nearest[name], label="to nearest")
    low, high = stochastic[name].min(1), stochastic[name].max(1)
    axis.fill_between(marks, low, high, alpha=0.3, label=f"stochastic, {runs} runs")
    axis.set(xscale="log", xlabel="terms", title=name)
axes[0].set_ylabel("sum of 1 / i")
axes[0].legend()
fig.savefig(figure, dpi=120, bbox_inches="tight")
