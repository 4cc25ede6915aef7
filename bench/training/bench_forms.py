"""Spellings of one training step beside the same step on one batch, and beside PyTorch and JAX."""

import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec

import numpy as np
import pytest

from bench.programs import forms
from bench.record import Recorder, at_least, number
from bench.sides.compare import Times
from bench.sides.processes import TURNS, Side, times_of

pytestmark = pytest.mark.filterwarnings("default")
REST = 0.02  # seconds
PEERS = {
    "PyTorch, eager": ("torch", "torch_turn", {"compiled": False}),
    "PyTorch, compiled": ("torch", "torch_turn", {"compiled": True}),
    "JAX, jitted": ("jax", "jax_turn", {}),
}

TABLE = "Samples a second, and the speed against the same step as one batch on one replica"


class Rested(Side):
    """A side that waits before a turn: threads of the side before may spin for some milliseconds after it."""

    def __call__(self) -> None:
        time.sleep(REST)
        super().__call__()


def popsr_sides(names: Mapping[str, object], replicas: int) -> dict[str, Side]:
    return {name: Rested("bench.programs.forms:turn", name=name, replicas=replicas) for name in names}


def peers(samples: int) -> dict[str, Side]:
    """Those that are installed; ``samples``: of a step."""
    return {
        name: Rested(f"bench.sides.forms_peers:{function}", samples=samples, **how)
        for name, (module, function, how) in PEERS.items()
        if find_spec(module)
    }


def assert_same(sides: Mapping[str, Side], reference: Side) -> None:
    """Losses of each step of the first turn agree."""
    for name, side in sides.items():
        np.testing.assert_allclose(side.results, reference.results, rtol=1e-3, err_msg=name)


def ratios(own: Times, other: Times) -> list[float]:
    """Of speeds, best and median."""
    return [other.best / own.best, other.median / own.median]


def extreme(times: Mapping[str, Times], names: Mapping[str, object], choose: Callable) -> Times:
    """Of the best or the worst form, by best times and by medians."""
    each = [times[name] for name in names]
    return Times(choose(t.best for t in each), choose(t.median for t in each))


def record_rows(
    record: Recorder,
    case: str,
    times: Mapping[str, Times],
    one_batch: Mapping[str, str],
    least: float,
    against_peers: Mapping[str, object],
) -> None:
    """Rows of one case; ``against_peers``: the forms that train as the peers do."""
    for name, t in times.items():
        cells = {"best": f"{forms.SAMPLES / t.best:,.0f}", "median": f"{forms.SAMPLES / t.median:,.0f}"}
        if name in one_batch:
            best, median = ratios(t, times[one_batch[name]])
            cells |= {"of one batch, best": number(best), "of one batch, median": number(median)}
            cells |= at_least(least, best)
        elif name in PEERS:
            for word, choose in (("best", min), ("worst", max)):
                best, median = ratios(extreme(times, against_peers, choose), t)
                cells |= {
                    f"{word} form against it, best": number(best),
                    f"{word} form, median": number(median),
                }
            cells |= at_least(1.0, best)
        record(TABLE, case, name, **cells)


@pytest.mark.parametrize("replicas", [2, 8])
def test_forms(benchmark, record, replicas):
    sgd = popsr_sides(forms.FORMS, replicas)
    adam = popsr_sides(forms.ADAM_FORMS, replicas)
    wholes = popsr_sides(forms.ONE_BATCH, replicas)
    others = peers(forms.samples_of(replicas))
    one_batch = {name: forms.SAME_UPDATE.get(name, "one batch") for name in sgd | adam}
    for name, side in (sgd | adam).items():
        assert_same({name: side}, wholes[one_batch[name]])
    assert_same(others, wholes["one batch"])
    times = times_of(benchmark, sgd | adam | wholes | others, TURNS)
    title = f"R = {replicas}, micro batch 8, accumulation 4"
    record_rows(record, title, times, one_batch, 0.85, forms.FORMS)
    benchmark.extra_info |= {name: forms.SAMPLES / t.median for name, t in times.items()}


def test_many_replicas(benchmark, record):
    replicas = 256
    sides = popsr_sides(forms.MANY, replicas) | peers(replicas)
    assert_same(sides, sides["looped steps, one batch"])
    times = times_of(benchmark, sides, TURNS)
    one_batch = {"looped steps": "looped steps, one batch"}
    title = f"R = {replicas}, micro batch 1, no accumulation"
    record_rows(record, title, times, one_batch, 0.5, one_batch)
    benchmark.extra_info |= {name: forms.SAMPLES / t.median for name, t in times.items()}
