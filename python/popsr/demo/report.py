"""Tables and figure of the demo."""

import re
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


def drift(forgetful: Training) -> str:
    """The first weight that drifts in a program that forgets the mean of its gradients, and its cause."""
    drifting = popsr.analysis.analyze(forgetful.ir).drifting()
    first = drifting[0]
    written, cause, advice = map(_short, (first.location, first.cause_location, first.suggestion))
    return (
        f"drift, found before anything runs: without the mean of gradients {len(drifting)} of "
        f"{len(forgetful.params)} weights and biases drift\n"
        f"  {first.variable.name}: declared {first.declared}, proved {first.partition}; written at {written}, since "
        f"{first.cause} at {cause}\n"
        f"  suggestion: {advice}"
    )


def _short(text: str) -> str:
    """A text whose files have no folders."""
    return re.sub(r"\S*/(\w+\.py:)", r"\1", text)


def in_step(program: Training, verdict: str) -> str:
    """The weights of the right program."""
    drifting = popsr.analysis.analyze(program.ir).drifting()
    return f"kept in step: with the mean {len(drifting)} of {len(program.params)} drift; check: {verdict}"


def findings(results: Results, keys: Sequence[int], epochs: int) -> str:
    """For each learning rate: how far both bf16 recipes end from fp32, measured on the same keys."""
    lines = [
        f"rounding, test accuracy after {epochs} epochs ({len(keys)} seeds), and training loss beside fp32's:"
    ]
    for rate in sorted({rate for rate, _ in results}):
        exact = results[rate, "fp32"]
        cells = [f"fp32 {np.mean([c.test_accuracy[-1] for c in exact]):.1f} %"]
        for name in ("bf16 nearest", "bf16 stochastic"):
            own = results[rate, name]
            accuracy = np.mean([c.test_accuracy[-1] for c in own])
            cells.append(f"{name} {accuracy:.1f} % ({_word(own, exact)})")
        lines.append(f"  rate {rate:<5g}{', '.join(cells)}")
    return "\n".join(lines)


def _word(own: Sequence[Curve], exact: Sequence[Curve]) -> str:
    """The ratio of training losses in a word: at most 1.05 and less than a point away tracks, above 1.5 stalls."""
    points = np.mean([c.test_accuracy[-1] - e.test_accuracy[-1] for c, e in zip(own, exact, strict=True)])
    loss, reference = (np.mean([c.train_loss[-1] for c in curves]) for curves in (own, exact))
    near = loss <= 1.05 * reference and abs(points) < 1
    word = "stalls" if loss > 1.5 * reference else "tracks" if near else "lags"
    return f"{word}, {loss / reference:.2f}x"


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
    fig.suptitle(
        f"{title}\nbf16 rounded to nearest loses updates below half a unit; rounded stochastically it keeps them"
    )
    fig.savefig(path, dpi=120)
