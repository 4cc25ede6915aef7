"""Times several programs by turns, so that a slow moment of the machine meets all of them alike."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bench.record import Recorder, at_least, ratios

ROUNDS = 15


@dataclass(frozen=True)
class Times:
    """Seconds."""

    best: float
    median: float


def by_turns(
    benchmark,
    sides: Mapping[str, Callable[[], object]],
    rounds: int = ROUNDS,
    *,
    calls: int = 1,
    rest: float = 0.0,
) -> dict[str, Times]:
    """Best and median time of a call of each side; the first is the one that pytest-benchmark records.

    ``calls``: one after the other in each turn. ``rest``: seconds before each turn, and then a call that is not timed:
    threads of one side that wait for work by spinning would take a core from the other side.
    """
    (first, target), *others = sides.items()
    for side in sides.values():
        side()
    taken: dict[str, list[float]] = {name: [] for name, _ in others}

    def turn(side: Callable[[], object]) -> None:
        for _ in range(calls):
            side()

    def rest_first(side: Callable[[], object]) -> None:
        if rest:
            time.sleep(rest)
            side()

    def run_the_others() -> None:
        for name, side in others:
            rest_first(side)
            start = time.perf_counter()
            turn(side)
            taken[name].append(time.perf_counter() - start)
        rest_first(target)

    benchmark.pedantic(turn, args=(target,), setup=run_the_others, rounds=rounds, iterations=1)
    return {
        name: Times(min(t) / calls, statistics.median(t) / calls)
        for name, t in ({first: benchmark.stats.stats.data} | taken).items()
    }


def cpu_by_turns(
    sides: Mapping[str, Callable[[], object]], rounds: int, *, calls: int = 1
) -> dict[str, Times]:
    """Best and median processor time of a call of each side, of one thread: other work counts only by its caches.

    ``calls``: one after the other in each turn.
    """
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(1 + rounds):
        for name, side in sides.items():
            start = time.process_time()
            for _ in range(calls):
                side()
            taken[name].append((time.process_time() - start) / calls)
    return {name: Times(min(each[1:]), statistics.median(each[1:])) for name, each in taken.items()}


def record_rates(
    record: Recorder,
    table: str,
    case: str,
    samples: int | Mapping[str, int],
    times: Mapping[str, Times],
    goals: Mapping[str, float],
) -> None:
    """Rows of samples a second; a ratio is the first side's rate over another's, and goals are of bests."""
    counts = samples if isinstance(samples, Mapping) else dict.fromkeys(times, samples)
    each = {name: Times(t.best / counts[name], t.median / counts[name]) for name, t in times.items()}
    own = next(iter(each.values()))
    for name, t in each.items():
        goal = at_least(goals[name], t.best / own.best) if name in goals else {}
        rates = {"best": f"{1 / t.best:,.0f}", "median": f"{1 / t.median:,.0f}"}
        record(table, case, name, **rates, **({} if t is own else ratios(t, own)), **goal)
