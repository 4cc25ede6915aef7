"""Verdict of ``popsr.prove(..., like="one device")`` on each planted bug of PyTorch, beside torch's own answer."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from tests_py.bridge.same.planted.cases import (
    Bug,
    Right,
    check_lines,
    check_words,
    ids,
    kinds_not_said,
    matching,
)
from tests_py.bridge.same.planted.said_torch import said
from tests_py.bridge.same.planted.torch_layers import TorchProgram
from tests_py.bridge.same.planted.torch_table import BUGS, STEPS
from tests_py.bridge.same.planted.truth_torch import names_of

ENGINES = [pytest.param(True, id="exact"), pytest.param(False, id="float64")]


def verdicts(program: TorchProgram, exact: bool) -> tuple[set[str], dict[str, str]]:
    """Names of what differs, and of what is unknown with the reason."""
    verdict = said(program, exact)
    return {*verdict.differing}, verdict.unknown


@pytest.mark.share(4)
@pytest.mark.parametrize("exact", ENGINES)
@pytest.mark.parametrize("name", ["accumulation", "sharded weights", "clipping", "tied stages"])
def test_right_steps(name: str, exact: bool) -> None:
    right = next(each for each in STEPS if each.name == name)
    assert verdicts(right.make(), exact) == (set(), {})


@pytest.mark.slow
@pytest.mark.parametrize("exact", ENGINES)
@pytest.mark.parametrize("right", STEPS, ids=[right.name for right in STEPS])
def test_all_right_steps(right: Right, exact: bool) -> None:
    assert verdicts(right.make(), exact) == (set(), {})


@pytest.mark.slow
@pytest.mark.parametrize("exact", ENGINES)
@pytest.mark.parametrize("pair", BUGS, ids=ids(BUGS))
def test_all_bugs(pair: tuple[Right, Bug], exact: bool) -> None:
    """The states differ that do in torch, by the table that torch's own runs agree with."""
    program = pair[0].make(pair[1].name)
    assert verdicts(program, exact) == (matching(pair[1].wrong, names_of(program)), {})


# Texts of the place, and of the change if one is right, for each way in which a line is found.
SAID = {
    ("clipping", "over all ranks"): (
        ", called at torch_tensor.py:",
        "the sum over model instead of data and model",
    ),
    ("clipping", "largest shard"): (", called at torch_tensor.py:", "the sum over model of what is made at"),
    ("checkpointed layers", "sum in both passes of a checkpoint"): (
        ", called at torch_tensor.py:",
        "no sum over model",
    ),
    ("sharded weights", "gradients not divided"): ("4 times", "1/4 times what is made at"),
    ("accumulation", "scale times ranks"): ("", "8 for 16 at"),
    ("tied vocabulary", "rows of others not masked"): ("same operands", ""),
    ("context parallel", "mask of local positions"): (", called at torch_tensor.py:", ""),
}


@pytest.mark.share(2)
@pytest.mark.parametrize("pair", SAID, ids=": ".join)
def test_what_is_said_of_a_line(pair: tuple[str, str]) -> None:
    check_words(said, BUGS, pair, *SAID[pair])


OTHERS = kinds_not_said(BUGS, SAID)


@pytest.mark.share(6)
@pytest.mark.parametrize("pair", OTHERS, ids=[bug.kind for _, bug in OTHERS])
def test_a_bug_of_each_kind(pair: tuple[Right, Bug]) -> None:
    program = pair[0].make(pair[1].name)
    assert verdicts(program, True) == (matching(pair[1].wrong, names_of(program)), {})


@pytest.mark.slow
def test_nine_of_ten_are_named_at_a_marked_line() -> None:
    check_lines(said, BUGS)
