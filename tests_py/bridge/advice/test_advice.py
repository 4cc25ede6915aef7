"""Advice that is followed makes wrong steps right; where it could not, there is none."""

from __future__ import annotations

import html
from pathlib import Path

import pytest

pytest.importorskip("jax")

from dataclasses import replace

from popsr.bridge._advice._edited import can_copy, edited
from popsr.errors import OutOfStepError
from popsr.testing import assert_in_step
from tests_py.bridge.advice.drawing import Recipe, drawn, read
from tests_py.bridge.advice.following import follow, unlike_whole

DATA = Recipe((("data", 2), ("more", 2)), "mean", "sgd", False, 3, False, "none", 1)
CUT = replace(DATA, mesh=(("data", 2), ("model", 2)))
ROWS = [  # step, what came of it, a part of the advice
    (DATA, "right", "take the mean over data, more of the gradient of"),
    (replace(DATA, optimiser="adam", clip=True), "right", "take the mean over data, more"),
    (CUT, "right", "take the mean over data {0,2}{1,3} of the gradient of"),
    (replace(CUT, fault="one"), "right", "of the gradient of 'p['w0']'"),
    (replace(CUT, loss="inside", plain=True, fault="vma"), "right", "check_vma=True"),
    (replace(DATA, loss="global", fault="one"), "right", "take the sum over data, more"),  # as of others
    (replace(DATA, loss="sum"), "silent", ""),  # mean or sum: nothing says it
    (replace(DATA, loss="half"), "silent", ""),
    (replace(CUT, loss="global", wide=2), "silent", ""),  # over 8 = 4 rows of 2 features, or of 2 replicas
    (replace(CUT, wide=2), "silent", ""),
    (replace(CUT, fault="f"), "silent", ""),  # weights that are cut have wrong gradients too
    (replace(CUT, fault="g"), "silent", ""),
    (replace(CUT, fault="axis"), "silent", ""),
]


@pytest.mark.parametrize(("recipe", "state", "text"), ROWS)
def test_advice(recipe: Recipe, state: str, text: str) -> None:
    found = follow(recipe)
    assert found.state == state, found
    assert text in found.text


def test_pages_and_assertions_show_it(tmp_path: Path) -> None:
    with pytest.raises(OutOfStepError) as caught:
        assert_in_step(read(DATA))
    proof = caught.value.proof
    notes = [f"advice, tried: {each}" for each in proof.advice]
    assert notes
    assert [each for each in caught.value.__notes__ if each.startswith("advice")] == notes
    proof.save_html(tmp_path / "proof.html")
    page = html.unescape((tmp_path / "proof.html").read_text())
    assert page.index("Problems") < page.index(str(proof.advice[0])) < page.index("States")


def test_a_copy_is_the_program() -> None:
    step = read(replace(CUT, optimiser="adam", clip=True))
    assert can_copy(step.ir)
    copied = edited(step, ())
    assert copied.ir._core.print_ir() == step.ir._core.print_ir()
    assert copied.derivatives == step.derivatives != frozenset()


def test_right_steps_are_those_of_one_replica() -> None:
    assert not [recipe for recipe in ROWS[:5] if unlike_whole(recipe[0])]


@pytest.mark.parametrize("first", [0, 10])
def test_random_steps(first: int) -> None:
    found = [follow(drawn(seed)) for seed in range(first, first + 10)]
    assert not [each for each in found if each.state == "wrong"]
    assert any(each.state == "right" for each in found)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 10_000, 500))
def test_many_random_steps(first: int) -> None:
    found = [follow(drawn(seed)) for seed in range(first, first + 500)]
    assert not [each for each in found if each.state == "wrong"]
