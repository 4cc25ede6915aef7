"""Optimisers of ``popsr.sr.torch`` on parameters in parts: the bits are those of one process."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests_py.bridge.torch import gloo
from tests_py.sr.optimisers import sharded


@pytest.mark.parametrize("world", [2, 4])
def test_numbers_are_positions_in_the_whole(world: int) -> None:
    assert gloo.run(world, sharded.misnumbered, world) == [[]] * world


@pytest.mark.parametrize(
    ("world", "share"),
    [
        (1, 5),
        (2, 2),
        (4, 7),
        pytest.param(4, 1, marks=pytest.mark.slow),
    ],
)
def test_bits_are_those_of_one_process(world: int, share: int) -> None:
    assert gloo.run(world, sharded.stepped_apart, world, share) == [[]] * world


@pytest.mark.parametrize("sizes", [(2,), (4,), (2, 2)])
def test_fully_shard(sizes: tuple[int, ...]) -> None:
    world = 2 if sizes == (2,) else 4
    assert gloo.run(world, sharded.trained_apart, sizes, "AdamW, narrow", None, (0, 3)) == [[]] * world


@pytest.mark.parametrize("what", ["AdamW, narrow", "Adafactor"])
def test_fully_shard_over_tensor_parallel(what: str) -> None:
    assert gloo.run(4, sharded.laid_out_by_torch, what) == [[]] * 4


@pytest.mark.parametrize("what", ["AdamW, narrow", "Adafactor"])
def test_checkpoints_go_on_with_other_ranks(tmp_path: Path, what: str) -> None:
    folder = str(tmp_path / "saved")
    for world, steps in ((4, (0, 2)), (2, (2, 4)), (1, (2, 4))):
        found = gloo.run(world, sharded.trained_apart, (world,), what, folder, steps)
        assert found == [[]] * world


GRADIENT = (
    "{}: a gradient is laid out otherwise than its parameter, got {}, expected {}: lay it out so before"
)
REFUSED = {
    "another gradient": GRADIENT.format("{}", "'(Replicate(),)'", "'(Shard(dim=0),)'"),
    "a local gradient": GRADIENT.format("{}", "'a local tensor'", "'(Shard(dim=0),)'"),
    "another mesh": GRADIENT.format("{}", "'(Replicate(),)' of another mesh", "'(Replicate(),)'"),
    "parts of a sum": "{}: elements of a parameter have no numbers, got placements '(Partial(sum),)', expected ",
    "another part": "{}: the part of a parameter is not that of its placements, got shape (2, 2) of (6, 2) as ",
}
REFUSED_BY = {
    "AdamW": {
        "another state": "{}: exp_avg of a state is laid out otherwise than its parameter, got '(Shard(dim=1"
    },
    "Adafactor": {
        "another order": "{}: torch cannot gather a parameter, got placements '(_StridedShard(dim=0"
    },
}


@pytest.mark.parametrize("kind", REFUSED_BY)
def test_other_layouts_are_refused(kind: str) -> None:
    expected = REFUSED | REFUSED_BY[kind]
    for found in gloo.run(2, sharded.refused, kind):
        assert found.keys() == expected.keys()
        for what, text in expected.items():
            assert found[what].startswith(text.format(kind))
