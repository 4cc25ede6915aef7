"""Random graphs: popsr computes what torch does, and every claim of the proof holds of the bits."""

from __future__ import annotations

import numpy as np
import pytest

import popsr.bridge.torch as bridge

torch = pytest.importorskip("torch")

from tests_py.bridge.torch.random_graphs import GROUPS, SHAPE, WORLD, random_graph, run_all  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::popsr.errors.ReplicaWarning")  # states that drift


def check(seed: int) -> None:
    module = random_graph(seed)
    generator = torch.Generator().manual_seed(seed)
    state = torch.randn(SHAPE, generator=generator)
    rows = torch.randn(WORLD, *SHAPE, generator=generator)
    step = bridge.from_fx(module, state, rows[0], replicas=WORLD, states={"state": 0}, process_groups=GROUPS)
    step.restart(check=True)
    proof = step.prove()
    got = step.run({"data": rows.numpy()})
    expected = run_all(module, [[state.clone(), row.clone()] for row in rows])
    names = [("state", 0), ("result[1]", 1)]
    for path, i in names:
        wanted = np.stack([each[i].numpy() for each in expected])
        scale = max(1.0, float(np.abs(wanted).max()))
        assert np.abs(got[path] - wanted).max() <= 2e-5 * scale, (seed, path)
    proved = proof.value("state").proved
    for block in proved.blocks:
        assert all(np.array_equal(got["state"][block[0]], got["state"][r]) for r in block), seed


@pytest.mark.parametrize("start", range(0, 40, 10))
def test_random_graphs(start: int) -> None:
    for seed in range(start, start + 10):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 4000, 100))
def test_many_random_graphs(start: int) -> None:
    for seed in range(start, start + 100):
        check(seed)
