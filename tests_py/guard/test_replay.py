"""Steps that a guard makes once more after a difference: the phase and the value that it names, on all ranks."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

pytest.importorskip("torch")

import torch  # isort: skip

from popsr.guard.torch._items import is_inner_step  # isort: skip
from tests_py.bridge.torch import gloo  # isort: skip
from tests_py.guard import replays  # isort: skip


def on_all(ranks: int, job: str, *args: Any) -> Any:
    """The one result of all ranks."""
    first, *others = gloo.run(ranks, replays.caught, job, *args)
    assert others == [first] * (ranks - 1)
    return first


WEIGHT = "outer.weight"
LEFT = "it is as the backward pass of each rank left it"
FREE = "its gradient differed before an update after which it agreed"
# Ranks, the fault of a job; then step, phase, value and element of its first place, and words of the remark.
PLACES = [
    (2, "forward", 4, "forward", "scale", (1, 2), ""),
    (4, "forward", 4, "forward", "scale", (1, 2), ""),
    (2, "backward", 4, "backward", "scale", (0, 2), ""),
    (2, "reduction", 4, "reduction", f"{WEIGHT}.grad", (0, 0), LEFT),
    (4, "reduction", 4, "reduction", f"{WEIGHT}.grad", (0, 0), LEFT),
    (4, "gradient", 4, "reduction", f"{WEIGHT}.grad", (0, 5), ""),
    (2, "missing", 4, "reduction", f"{WEIGHT}.grad", None, "and no gradient"),
    (2, "unreduced", 4, "update", "inner.weight", (0, 0), "no gradient was reduced before it"),
    (2, "update", 4, "update", f"optimizer.{WEIGHT}.exp_avg", (0, 11), ""),
    (4, "update", 4, "update", f"optimizer.{WEIGHT}.exp_avg", (0, 11), ""),
    (
        2,
        "own update",
        4,
        "update",
        WEIGHT,
        (0, 11),
        "gradients of 4 values differed before it, and 3 of these",
    ),
    (2, "own update", 5, "update", WEIGHT, (0, 11), FREE),
    (2, "end", 4, "end", WEIGHT, (0, 11), ""),
    (2, "rate", 5, "start", "optimizer.group0.lr", (), ""),
]


@pytest.mark.parametrize("row", PLACES, ids=lambda row: f"{row[1]} {row[2]} of {row[0]}")
def test_the_first_place_is_named(row: Any) -> None:
    ranks, kind, step, phase, name, element, words = row
    error, place, others, text = on_all(ranks, "fault", kind, True, 4 if kind == "rate" else step)
    assert (error, place) == ("DriftError", (step, phase, name, element))
    assert others == ()
    assert words in text
    assert f"replay from step 3: first seen in step {step}, " in text


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_fault_that_a_replay_does_not_show(ranks: int) -> None:
    for kind in ("forward", "reduction", "update", "end"):
        error, place, others, text = on_all(ranks, "fault", kind, False)
        assert (error, place) == ("DriftError", (None, "", None, None))
        assert others != ()
        assert "not reproduced, hashes agree after each phase of each step" in text
        assert "it ends with other bits than the run on ranks" in text
    assert on_all(ranks, "fault", "loop")[1:3] == ((None, "", None, None), (1,))
    assert on_all(ranks, "fault", "none") == "agree"
    assert on_all(ranks, "fault", "own none") == "agree"


def test_a_hook_keeps_no_value_of_the_loop_alive() -> None:
    """Python keeps the local values of a frame that is asked for them."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    optimizer.register_step_post_hook(lambda each, *_: is_inner_step(each))

    def loop() -> bool:
        batch = torch.ones(3)
        seen = weakref.ref(batch)
        optimizer.step()
        del batch
        return seen() is None

    assert loop()


def test_a_step_that_calls_the_one_of_its_base_counts_once() -> None:
    assert on_all(2, "counted") == (3, 3)


def test_wrapped_models() -> None:
    _, place, others, text = on_all(4, "distributed", "gradient")
    assert place == (4, "reduction", "outer.weight.grad", (0, 5))
    assert others == ()
    assert "0x" in text
    _, place, others, text = on_all(4, "distributed", "flip")
    assert (place, others) == ((None, "", None, None), ())
    assert "no steps that run made are kept" in text
    _, place, others, text = on_all(4, "sharded")
    assert place == (4, "reduction", "2.weight.grad", (4, 1))
    assert "ranks 1 and 3 (dp 0, shard 1 and dp 1, shard 1)" in text


def test_a_replay_leaves_the_job_as_it_was() -> None:
    with_replay, without = (gloo.run(2, replays.caught, "warned", each) for each in (True, False))
    for (end, warned, texts), (plain, plain_warned, _) in zip(with_replay, without, strict=True):
        assert end == plain
        assert len(warned) == len(plain_warned) == 2
        assert warned[0].startswith(plain_warned[0])
        assert "replay from step 3: first seen in step 4, after the reduction" in warned[0]
        assert "no steps that run made are kept" in warned[1]
        assert "after the reduction of gradients: 'outer.weight.grad'" in texts[2]


def test_a_step_that_raises_in_a_replay() -> None:
    _, place, _, text = on_all(2, "raises", "all")
    assert place == (None, "", None, None)
    assert text == "replay from step 3: no place is found: the replay failed, got ValueError: no second time"
    first, second = gloo.run(2, replays.caught, "raises", "one")
    assert first[0] == second[0] == "DriftError"
    assert "no place is found: the replay failed, got ValueError: no second time" in second[3]
    assert "no place is found: the replay failed" in first[3]


REFUSED = [
    ("bisect", "ArgumentTypeError", "bisect is not a bool, got 3"),
    ("state", "ArgumentTypeError", "an object has no state to keep, got 3"),
    ("closed", "StateError", "run makes no step, got a guard that is not open"),
    ("inside", "StateError", "run makes no step, got a step inside of a step"),
    ("outside", "StateError", "a step cannot be made once more, got one that run did not make"),
    ("iterator", "ArgumentTypeError", "a step cannot be replayed from an iterator, got"),
    ("function", "ArgumentTypeError", "run: step cannot be called, got 3"),
    ("copy", "UnsupportedError", "an argument of run cannot be copied, got"),
    (
        "changes",
        "DriftError",
        "no place is found: the replay failed, got guard: the model or an optimizer changed",
    ),
    ("first", "DriftError", "step 0: 'scale' is declared equal"),
]


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row[0])
def test_bad_input_is_a_typed_error_on_all_ranks(row: Any) -> None:
    what, kind, words = row
    found = on_all(2, "wrong", what)
    assert found[0] == kind
    assert words in "".join(map(str, found))


def test_run_without_a_replay_is_a_call() -> None:
    assert on_all(2, "wrong", "off") == 3
