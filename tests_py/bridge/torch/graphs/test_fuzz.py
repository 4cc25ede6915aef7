"""Random graphs: popsr computes what torch does, and every claim of the proof holds of the bits of both."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests_py.bridge.torch.graphs.fuzz import check  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::popsr.errors.ReplicaWarning")  # states that drift


@pytest.mark.parametrize("start", range(0, 40, 20))
def test_random_graphs(start: int) -> None:
    outcomes = [check(seed) for seed in range(start, start + 20)]
    assert outcomes.count("compared") >= 14, outcomes
    assert "unsupported" not in outcomes


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 11000, 500))
def test_many_random_graphs(start: int) -> None:
    outcomes = [check(seed) for seed in range(start, start + 500)]
    assert outcomes.count("compared") >= 400, outcomes
    assert outcomes.count("unstable") <= 10
