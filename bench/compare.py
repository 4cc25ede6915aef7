"""Times several programs by turns, so that a slow moment of the machine meets all of them alike."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

ROUNDS = 15


@dataclass(frozen=True)
class Times:
    """Seconds."""

    best: float
    median: float


def by_turns(benchmark, sides: Mapping[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, Times]:
    """Best and median of each side; the first is the one that pytest-benchmark records."""
    (first, target), *others = sides.items()
    for side in sides.values():
        side()
    taken: dict[str, list[float]] = {name: [] for name, _ in others}

    def run_the_others() -> None:
        for name, side in others:
            start = time.perf_counter()
            side()
            taken[name].append(time.perf_counter() - start)

    benchmark.pedantic(target, setup=run_the_others, rounds=rounds, iterations=1)
    return {
        name: Times(min(t), statistics.median(t))
        for name, t in ({first: benchmark.stats.stats.data} | taken).items()
    }


def table(title: str, samples: int | Mapping[str, int], times: Mapping[str, Times]) -> None:
    """Samples per second of each side, and its time against the first side's, best and median."""
    first = next(iter(times))
    counts = samples if isinstance(samples, Mapping) else dict.fromkeys(times, samples)
    print(f"\n{title}")
    print(f"{'':28}{'best':>14}{'median':>14}   samples/s{'':6}{first} against it: best, median")
    for name, t in times.items():
        best, median = (
            (other / counts[name]) / (own / counts[first])
            for other, own in ((t.best, times[first].best), (t.median, times[first].median))
        )
        print(
            f"{name:28}{counts[name] / t.best:14,.0f}{counts[name] / t.median:14,.0f}{'':18}"
            f"{best:.2f}x, {median:.2f}x"
        )
