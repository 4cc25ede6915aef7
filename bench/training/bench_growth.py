"""Growth of the time of a training step: with replicas, layers, the length of a sequence, and threads.

Each point is a process of its own, and all points of a table make their turns one after another. Expected times are of
the FLOPs of the products, at the rate of the last point. Besides printing its table, each test writes it into
docs/growth.md and a picture into docs/_static.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from bench.pictures import BLUE, GREEN, GREY, ORANGE, coloured, picture
from bench.programs import basic
from bench.programs.growth_programs import attention_layer_flops, gpt_flops, mlp_flops
from bench.record import Recorder, duration
from bench.sides.compare import Times
from bench.sides.processes import Side, times_of

pytestmark = pytest.mark.filterwarnings("default")
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/growth.md"
TURNS = 15

REPLICAS = [2**i for i in range(11)]
TINY = [8, 8, 8, 8, 8]  # a network whose products take next to no time
LAYERS = [1, 2, 4, 8, 16, 32, 48]
GPT = {"hidden": 128, "heads": 4, "sequence": 64}
SEQUENCES = [2**i for i in range(6, 13)]
ATTENTION = {"hidden": 64, "heads": 2}
THREADS = [1, 2]


def measured(benchmark, sides: Mapping[object, tuple[str, dict]]) -> tuple[dict, dict]:
    """Seconds of a step of each side, a function of growth_programs.py with its arguments; and results."""
    started = {
        name: Side(f"bench.programs.growth_programs:{function}", **arguments)
        for name, (function, arguments) in sides.items()
    }
    times = times_of(benchmark, started, TURNS)
    results = {name: side.results for name, side in started.items()}
    assert all(np.all(np.isfinite(each["means"])) for each in results.values())
    return {name: shared(t, results[name].pop("steps")) for name, t in times.items()}, results


def shared(times: Times, count: int) -> Times:
    """Of one of ``count`` steps or samples."""
    return Times(times.best / count, times.median / count)


def anchored(flops: Sequence[float], last: float) -> list[float]:
    """Times at the rate of the last point."""
    return [last * each / flops[-1] for each in flops]


def slopes(xs: Sequence[float], ys: Sequence[float]) -> list[str]:
    """Exponent of the growth from the point before to each point."""
    logs = np.diff(np.log2(ys)) / np.diff(np.log2(xs))
    return ["", *(f"{slope:.2f}" for slope in logs)]


@dataclass(frozen=True)
class Line:
    """Of a picture: measured points, or what is expected without them."""

    name: str
    values: list[float]
    colour: str
    style: str = "o-"


def publish(record: Recorder, name: str, title: str, columns: Mapping[str, Sequence[str]]) -> None:
    """Writes a table into the page, and records its rows."""
    rows = list(zip(*columns.values(), strict=True))
    head = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    text = "\n".join(head + ["| " + " | ".join(row) + " |" for row in rows])
    page = PAGE.read_text()
    place = re.compile(rf"(?<=<!-- growth: {name} -->\n).*?(?=<!-- end -->)", re.DOTALL)
    assert len(place.findall(page)) == 1, name
    PAGE.write_text(place.sub(lambda _: f"\n{text}\n\n", page))
    first, *others = columns
    for case, *cells in rows:
        record(title, f"{first}: {case}", **dict(zip(others, cells, strict=True)))


def draw(name: str, xs: Sequence[int], lines: Iterable[Line], label: str, unit: str) -> None:
    """Writes a picture. Both axes are logarithmic, to base 2."""
    from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

    factor = {"µs": 1e6, "ms": 1e3}.get(unit.split()[0], 1)
    with picture(f"growth_{name}", (7.2, 4.6)) as figure:
        axes = figure.subplots()
        for line in lines:
            values = [value * factor for value in line.values]
            axes.plot(xs, values, line.style, color=line.colour, label=line.name)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        low, high = axes.get_ylim()
        doublings = math.log2(high / low)
        tenths = FixedLocator(np.arange(1, 31) / 10)
        axes.xaxis.set_major_locator(FixedLocator(xs))
        axes.yaxis.set_major_locator(tenths if doublings < 2 else LogLocator(2 ** math.ceil(doublings / 10)))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(lambda x, _: f"{x:,g}" if x >= 1 else f"{x:.3g}")
        coloured(axes, label, unit)
        figure.legend(loc="outside upper center", ncols=2, frameon=False, labelcolor=GREY)


def columns_of(
    first: str, xs: Sequence[int], times: Sequence[Times], expected: list[float], **more: list[str]
) -> dict[str, list[str]]:
    """Columns of a table with a row for each x."""
    best = [t.best for t in times]
    return {
        first: [f"{x:,}" for x in xs],
        "best": [duration(s) for s in best],
        "median": [duration(t.median) for t in times],
        "expected": [duration(s) for s in expected],
        "best / expected": [f"{s / e:.2f}" for s, e in zip(best, expected, strict=True)],
        "slope": slopes(xs, best),
        "expected slope": slopes(xs, expected),
        **more,
    }


def test_replicas(benchmark, record):
    networks = {"wide": list(basic.SIZES), "tiny": TINY}
    sides = {
        (name, r): ("mlp", {"replicas": r, "sizes": sizes})
        for name, sizes in networks.items()
        for r in REPLICAS
    }
    times, results = measured(benchmark, sides)
    for name in networks:  # the first sample's loss
        first = [results[name, r]["first"] for r in REPLICAS]
        np.testing.assert_allclose(first, first[0], rtol=1e-5)
    wide, tiny = ([shared(times[name, r], r) for r in REPLICAS] for name in networks)
    best, floor = [t.best for t in wide], [t.best for t in tiny]
    expected = anchored([mlp_flops(networks["wide"])] * len(REPLICAS), best[-1])
    table = columns_of(
        "replicas", REPLICAS, wide, expected, **{"8 features wide, best": [duration(s) for s in floor]}
    )
    lines = [
        Line("784-512-512-512-10, best", best, BLUE),
        Line("its FLOPs, at the rate of R = 1,024", expected, ORANGE, "--"),
        Line("the step of R = 1, shared by R samples", [best[0] / r for r in REPLICAS], GREY, ":"),
        Line("8-8-8-8-8, best", floor, GREEN),
    ]
    publish(record, "replicas", "Time of a sample", table)
    draw("replicas", REPLICAS, lines, "replicas, micro batch 1", "µs a sample")


def test_layers(benchmark, record):
    sides = {n: ("gpt", {"layers": n, **GPT}) for n in LAYERS}
    times, results = measured(benchmark, sides)
    assert all(second < first for first, second in (results[n]["means"] for n in LAYERS))
    flops = [gpt_flops(n, GPT["hidden"], GPT["sequence"]) for n in LAYERS]
    measurements = [times[n] for n in LAYERS]
    best = [t.best for t in measurements]
    expected = anchored(flops, best[-1])
    each = [f"{f / 1e9 / s:.1f}" for f, s in zip(flops, best, strict=True)]
    table = columns_of("layers", LAYERS, measurements, expected, **{"GFLOP/s": each})
    lines = [Line("best", best, BLUE), Line("FLOPs, at the rate of 48 layers", expected, ORANGE, "--")]
    publish(record, "layers", "Time of a step of GPT's blocks", table)
    draw("layers", LAYERS, lines, "layers", "ms a step")


def test_sequence(benchmark, record):
    sides = {n: ("attention", {"sequence": n, **ATTENTION}) for n in SEQUENCES}
    times, results = measured(benchmark, sides)
    assert all(second < first for first, second in (results[n]["means"] for n in SEQUENCES))
    for n in SEQUENCES:  # causal: later positions change nothing of earlier ones
        np.testing.assert_allclose(results[n]["row"], results[SEQUENCES[0]]["row"], atol=1e-5)
    parts = [attention_layer_flops(ATTENTION["hidden"], n) for n in SEQUENCES]
    flops = [linear + quadratic for linear, quadratic in parts]
    measurements = [times[n] for n in SEQUENCES]
    best = [t.best for t in measurements]
    expected = anchored(flops, best[-1])
    linear, quadratic = (
        [s * part[i] / f for s, part, f in zip(expected, parts, flops, strict=True)] for i in range(2)
    )
    share = [f"{q / f:.0%}".replace("%", " %") for (_, q), f in zip(parts, flops, strict=True)]
    each = [f"{f / 1e9 / s:.1f}" for f, s in zip(flops, best, strict=True)]
    more = {"quadratic part of the FLOPs": share, "GFLOP/s": each}
    table = columns_of("positions", SEQUENCES, measurements, expected, **more)
    lines = [
        Line("best", best, BLUE),
        Line("FLOPs, at the rate of 4,096 positions", expected, ORANGE, "--"),
        Line("their linear part", linear, GREY, ":"),
        Line("their quadratic part", quadratic, GREY, "-."),
    ]
    publish(record, "sequence", "Time of a step of one attention layer", table)
    draw("sequence", SEQUENCES, lines, "positions", "ms a step")


def test_threads(benchmark, record):
    sizes = list(basic.SIZES)
    cases = {
        "MLP, R = 1": ("mlp", {"replicas": 1, "sizes": sizes}),
        "MLP, R = 256": ("mlp", {"replicas": 256, "sizes": sizes}),
        "GPT, 8 layers": ("gpt", {"layers": 8, **GPT}),
    }
    sides = {
        (name, threads): (function, {**arguments, "threads": threads})
        for name, (function, arguments) in cases.items()
        for threads in THREADS
    }
    times, results = measured(benchmark, sides)
    names = (
        "step",
        "one thread, best",
        "median",
        "two threads, best",
        "their median",
        "gain of bests",
        "of medians",
    )
    table: dict[str, list[str]] = {name: [] for name in (*names, "at most")}
    lines = [Line("FLOPs, shared by the threads", [1 / n for n in THREADS], GREY, "--")]
    for name, colour in zip(cases, (GREEN, BLUE, ORANGE), strict=True):
        one, two = (times[name, threads] for threads in THREADS)
        assert results[name, 1] == results[name, 2], name  # to the bit
        cells = [duration(s) for s in (one.best, one.median, two.best, two.median)]
        gains = [f"{one.best / two.best:.2f}", f"{one.median / two.median:.2f}", "2"]
        for column, cell in zip(table.values(), [name, *cells, *gains], strict=True):
            column.append(cell)
        lines.append(Line(f"{name}, best", [1, two.best / one.best], colour))
    publish(record, "threads", "Gain of two threads", table)
    draw("threads", THREADS, lines, "threads", "time, one thread's being 1")
