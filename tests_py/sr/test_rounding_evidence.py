"""Trainings of docs/rounding_evidence.md at a size of seconds: they run, and popsr's resume with the same bits."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import popsr
from bench.record import Recorder

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

models: Any = importlib.import_module("bench.programs.rounding_models")  # these need torch
adamws: Any = importlib.import_module("bench.sides.adamws")
bench: Any = importlib.import_module("bench.training.bench_rounding")

OWN = [side for side, variant in adamws.TRAINED.items() if variant.needs is None]


class Pool:
    """Calls in this process."""

    def apply(self, function: Callable[..., str], arguments: tuple[Any, ...]) -> str:
        return function(*arguments)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(bench, "record", Recorder(tmp_path / "bench_rounding.py"))
    bench.record.path = tmp_path / "rounding.json"
    monkeypatch.setattr(bench, "JUDGED", 8)
    monkeypatch.setattr(bench, "RESUMED", 4)
    before = popsr.num_threads(), torch.get_num_threads()
    yield
    popsr.set_num_threads(before[0])
    torch.set_num_threads(before[1])


@pytest.mark.parametrize("task", models.TASKS)
def test_optimisers_that_need_no_package_train_and_resume(task: str) -> None:
    resumes = {side: bench.resumed(task, side, Pool()) for side in OWN}
    assert resumes == dict.fromkeys(OWN, "yes")
    found = bench.trained(task, OWN, 1, 2)
    bench.add_rows(task, found, resumes)
    bench.record.save()
    [table] = json.loads(bench.record.path.read_text())
    assert [row["case"] for row in table["runs"][0]["rows"]] == OWN
    assert {row["bytes a weight"] for row in table["runs"][0]["rows"]} == {"6", "10", "12"}


def test_a_generator_that_is_not_saved_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    class Noisy(adamws.NearestAdamW):
        """Draws from torch's generator, as an optimiser does that has no seed of its own."""

        def step(self, closure: None = None) -> None:
            super().step()
            with torch.no_grad():
                for p in self.param_groups[0]["params"]:
                    p.add_(torch.rand(p.shape), alpha=0.01)

    monkeypatch.setitem(adamws.TRAINED, "noisy", adamws.Variant(lambda params, lr, seed: Noisy(params, lr)))
    assert bench.resumed("MLP on digits", "noisy", Pool()) == "with torch's generator"


def test_stochastic_and_nearest_start_alike_and_part() -> None:
    sides = "to nearest, fp32 moments", adamws.POPSR
    runs = [bench.Run("MLP on digits", side, 0, 1e-4, 100) for side in sides]
    assert all(torch.equal(p, q) for p, q in zip(*(run.first for run in runs), strict=True))
    nearest, stochastic = (bench.outcome(run.go(20)) for run in runs)
    assert nearest.unmoved > stochastic.unmoved


def test_the_rate_rises_and_falls() -> None:
    rates = [models.rate(step, 1.0, 100) for step in range(100)]
    assert rates.index(max(rates)) in (4, 5)
    assert rates[0] == pytest.approx(0.2)
    assert rates[-1] < 1e-3
