"""Optimisers of ``popsr.sr.torch`` on parameters in parts: the bits are those of one process."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests_py.bridge.torch import gloo
from tests_py.sr import sharded


@pytest.mark.parametrize("world", [2, 4])
def test_numbers_are_positions_in_the_whole(world: int) -> None:
    assert gloo.run(world, sharded.misnumbered, world) == [[]] * world


@pytest.mark.parametrize(
    ("world", "share"), [(1, 5), (2, 2), (4, 5), pytest.param(4, 1, marks=pytest.mark.slow)]
)
def test_bits_are_those_of_one_process(world: int, share: int) -> None:
    assert gloo.run(world, sharded.stepped_apart, world, share) == [[]] * world


@pytest.mark.parametrize("sizes", [(2,), (4,), (2, 2)])
def test_fully_shard(sizes: tuple[int, ...]) -> None:
    world = 2 if sizes == (2,) else 4
    assert gloo.run(world, sharded.trained_apart, sizes, "AdamW, narrow", None, (0, 3)) == [[]] * world


def test_checkpoints_go_on_with_other_ranks(tmp_path: Path) -> None:
    folder = str(tmp_path / "saved")
    for world, steps in ((4, (0, 2)), (2, (2, 4)), (1, (2, 4))):
        found = gloo.run(world, sharded.trained_apart, (world,), "AdamW, narrow", folder, steps)
        assert found == [[]] * world
