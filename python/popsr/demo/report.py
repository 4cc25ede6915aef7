"""Tables and figure of the demo."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import popsr
from popsr.demo.model import RECIPES, Training
from popsr.demo.train import Curve

# (learning rate, recipe's name) -> a curve for each key
Results = Mapping[tuple[float, str], Sequence[Curve]]
WIDTH = 24
PROBES = {
    "x": "images",
    "h0": "activations",
    "dw0": "gradient",
    "mean_dw0": "gradient, all-reduced",
    "w0": "weights",
}


def mean_and_deviation(values: Sequence[float], digits: int) -> str:
    """Mean ± sample standard deviation; a single value by itself."""
    mean = f"{np.mean(values):.{digits}f}"
    return f"{mean} ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else mean


def scores(results: Results, keys: Sequence[int], epochs: int) -> str:
    """The table of accuracies and losses, and the accuracy of every key."""
    rates = sorted({rate for rate, _ in results})
    lines = [f"after {epochs} epochs, mean ± s.d. over keys {', '.join(map(str, keys))}"]
    lines.append(f"{'':8}{'':20}" + "".join(f"{r.name:>{WIDTH}}" for r in RECIPES))
    for rate in rates:
        curves = [results[rate, r.name] for r in RECIPES]
        rows = {
            "test accuracy, %": [mean_and_deviation([c.test_accuracy[-1] for c in cs], 2) for cs in curves],
            "test loss": [mean_and_deviation([c.test_loss[-1] for c in cs], 4) for cs in curves],
            "training loss": [mean_and_deviation([c.train_loss[-1] for c in cs], 4) for cs in curves],
        }
        for i, (what, cells) in enumerate(rows.items()):
            label = f"lr {rate:<5g}" if i == 0 else ""
            lines.append(f"{label:8}{what:20}" + "".join(f"{c:>{WIDTH}}" for c in cells))
    lines.append("test accuracy of each key, %")
    for rate in rates:
        for recipe in RECIPES:
            each = "  ".join(f"{c.test_accuracy[-1]:6.2f}" for c in results[rate, recipe.name])
            lines.append(f"{f'lr {rate:<5g}':8}{recipe.name:20}{each}")
    return "\n".join(lines)


def findings(results: Results) -> str:
    """For each learning rate: how far both bf16 recipes end from fp32, measured on the same keys."""
    lines = [
        "against fp32 of the same keys: stalls = over 1.5x the training loss; "
        "tracks = at most 1.05x and less than 1 point of accuracy away; lags = between"
    ]
    for rate in sorted({rate for rate, _ in results}):
        for name in ("bf16 nearest", "bf16 stochastic"):
            pairs = list(zip(results[rate, name], results[rate, "fp32"], strict=True))
            points = [c.test_accuracy[-1] - e.test_accuracy[-1] for c, e in pairs]
            own, exact = np.mean([(c.train_loss[-1], e.train_loss[-1]) for c, e in pairs], axis=0)
            near = own <= 1.05 * exact and abs(np.mean(points)) < 1
            word = "stalls" if own > 1.5 * exact else "tracks" if near else "lags"
            lines.append(
                f"{f'lr {rate:<5g}':8}{name:20}{word:8}{own / exact:5.2f}x the training loss, "
                f"{mean_and_deviation(points, 2)} points of test accuracy"
            )
    return "\n".join(lines)


def partitions(program: Training) -> str:
    """The replicas that hold bitwise the same value, proved before anything runs."""
    facts = popsr.analysis.analyze(program.ir)
    lines = [
        (f"{name}: {facts.partition(program.probes[name])}", meaning) for name, meaning in PROBES.items()
    ]
    return "\n".join(f"{fact:28}{meaning}" for fact, meaning in lines)


def speed(results: Results) -> str:
    """Images per second of every recipe, over all its runs; scoring the test images is not counted."""
    parts = []
    for recipe in RECIPES:
        curves = [c for (_, name), cs in results.items() if name == recipe.name for c in cs]
        parts.append(f"{recipe.name} {sum(c.images for c in curves) / sum(c.seconds for c in curves):,.0f}")
    return ", ".join(parts)


def figure(results: Results, path: Path, title: str) -> None:
    """Learning curves: a column for each learning rate; lines are means over keys, bands ± one s.d."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rates = sorted({rate for rate, _ in results})
    fig = Figure(figsize=(4 * len(rates), 6.4), layout="constrained")
    FigureCanvasAgg(fig)
    axes = fig.subplots(2, len(rates), squeeze=False, sharex=True, sharey="row")
    styles = {"fp32": ("black", "-"), "bf16 nearest": ("tab:red", "-"), "bf16 stochastic": ("tab:blue", "--")}
    for column, rate in enumerate(rates):
        for name, (colour, line) in styles.items():
            for row, curves in enumerate(
                ([c.train_loss for c in results[rate, name]], [c.test_accuracy for c in results[rate, name]])
            ):
                mean = np.mean(curves, axis=0)
                sd = np.std(curves, axis=0, ddof=min(1, len(curves) - 1))
                epochs = np.arange(1, len(mean) + 1)
                axes[row, column].plot(epochs, mean, line, color=colour, label=name)
                axes[row, column].fill_between(epochs, mean - sd, mean + sd, color=colour, alpha=0.15, lw=0)
        axes[0, column].set(title=f"learning rate {rate:g}", yscale="log")
        axes[1, column].set(xlabel="epoch")
    axes[0, 0].set(ylabel="training loss")
    axes[1, 0].set(ylabel="test accuracy, %")
    axes[0, 0].legend(frameon=False)
    fig.suptitle(title)
    fig.savefig(path, dpi=120)
