"""Random right parallel steps are the same as on one device, and a change of one is what JAX says it is."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("jax")

from tests_py.bridge.same.random_steps.checks import check_mutant, check_right
from tests_py.bridge.same.random_steps.drawing import drawn
from tests_py.bridge.same.random_steps.plan import MESHES

SEEDS = (2, 4, 5)
MANY = range(int(os.environ.get("POPSR_FUZZ_SEED", "0")), int(os.environ.get("POPSR_FUZZ_PROGRAMS", "100")))
MUTANTS = ("mutant: found", "mutant: equivalent", "mutant: none")


@pytest.mark.parametrize("seed", SEEDS)
def test_right_steps(seed: int) -> None:
    found = check_right(seed, ask=seed == SEEDS[0])
    assert found.outcome in ("right: same", "right: same, as JAX"), found.text


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_mutants(seed: int) -> None:
    found = check_mutant(seed)
    assert found.outcome in MUTANTS, found.text


@pytest.mark.slow
@pytest.mark.parametrize("seed", MANY)
def test_many(seed: int) -> None:
    """All with JAX's own answer; POPSR_FUZZ_SEED and POPSR_FUZZ_PROGRAMS say which."""
    found = check_right(seed, ask=True)
    assert found.outcome == "right: same, as JAX", found.text
    changed = check_mutant(seed)
    assert changed.outcome in MUTANTS, changed.text


def test_what_is_drawn() -> None:
    """Each mesh, way to the gradients, layer, loss and optimiser comes up; a seed is one step."""
    words = [drawn(seed)[1] for seed in range(300)]
    text = "\n".join(words)
    assert {str(mesh) for mesh in MESHES} == {each.partition("}")[0] + "}" for each in words}
    for part in (
        "linear",
        "layers",
        "typed",
        "sequence-parallel norms",
        "context: ring",
        "context: exchanged",
    ):
        assert part in text, part
    for part in (
        "experts: exchanged",
        "experts: gathered",
        "micro batches",
        "rounds: scan",
        "entropy: gathered",
        "tied",
    ):
        assert part in text, part
    for part in (
        "contrast",
        "squares",
        "classes",
        "sharded moments",
        "clip: where",
        "clip: minimum",
        "scattered",
    ):
        assert part in text, part
    assert drawn(7)[1] == words[7]
