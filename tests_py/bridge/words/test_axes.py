"""Partitions in the words of axes, beside NumPy's own reshapes of the mesh."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from popsr.analysis._axes import ReplicaAxes, named_groups, shown_axes, shown_groups
from popsr.replicas import Partition

SQUARE = ReplicaAxes.of_sizes({"data": 2, "model": 2})
CUBE = {"a": 2, "b": 3, "c": 4}
LARGE = ReplicaAxes.of_sizes({"data": 16, "tensor": 8, "pipe": 4})


def partition(blocks: Sequence[Sequence[int]]) -> Partition:
    label = {replica: number for number, block in enumerate(blocks) for replica in block}
    first = {number: n for n, number in enumerate(dict.fromkeys(label[r] for r in range(len(label))))}
    return Partition.from_labels([first[label[replica]] for replica in range(len(label))])


def planes(sizes: dict[str, int], within: Sequence[str], order: Sequence[int]) -> Partition:
    """Blocks of the replicas that differ along some axes alone; ``order`` says which replica is where."""
    cube = np.asarray(order).reshape([*sizes.values()])
    names = [*sizes]
    outer = [names.index(name) for name in names if name not in within]
    inner = [names.index(name) for name in within]
    rows = cube.transpose(*outer, *inner).reshape(-1, int(np.prod([cube.shape[i] for i in inner], dtype=int)))
    return partition(rows.tolist())


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("within", [each for n in range(4) for each in itertools.combinations(CUBE, n)])
def test_every_product_of_axes_is_named(within: tuple[str, ...], shuffled: bool) -> None:
    order = np.random.default_rng(3).permutation(24) if shuffled else np.arange(24)
    places = np.stack(np.unravel_index(np.argsort(order), tuple(CUBE.values())))
    axes = ReplicaAxes(tuple(CUBE), tuple(tuple(row) for row in places.tolist()))
    found = planes(CUBE, within, order.tolist())
    assert axes.along(found) == within
    assert axes.split_axes(found) == tuple(name for name in CUBE if name not in within)


def test_no_other_partition_of_four_is_named() -> None:
    named = {}
    for labels in itertools.product(range(4), repeat=4):
        if [*dict.fromkeys(labels)] == [*range(len(set(labels)))]:
            each = Partition.from_labels(labels)
            if SQUARE.split_axes(each) is not None:
                named[str(each)] = SQUARE.split_axes(each)
    assert named == {
        "{0,1,2,3}": (),
        "{0,2}{1,3}": ("model",),
        "{0,1}{2,3}": ("data",),
        "{0}{1}{2}{3}": ("data", "model"),
    }


def test_a_partition_of_other_replicas_is_not_named() -> None:
    assert SQUARE.split_axes(Partition.from_labels([0, 0])) is None
    assert SQUARE.split_axes(Partition.from_labels([0, 0, 1, 1, 0, 0])) is None


@pytest.mark.parametrize(
    ("axes", "blocks", "sharded", "text"),
    [
        (SQUARE, [[0, 1, 2, 3]], False, "equal over data, model"),
        (SQUARE, [[0, 1, 2, 3]], True, "equal over data, model"),
        (SQUARE, [[0, 2], [1, 3]], False, "differs over model {0,2}{1,3}"),
        (SQUARE, [[0, 2], [1, 3]], True, "sharded over model {0,2}{1,3}"),
        (SQUARE, [[0], [1], [2], [3]], False, "differs over data, model"),
        (SQUARE, [[0, 3], [1, 2]], False, "{0,3}{1,2}"),
        (SQUARE, [[0, 1, 2], [3]], True, "{0,1,2}{3}"),
        (None, [[0, 2], [1, 3]], True, "{0,2}{1,3}"),
        (ReplicaAxes.of_sizes({"data": 1}), [[0]], False, "{0}"),
        (ReplicaAxes.of_sizes({"pod": 1, "data": 2}), [[0], [1]], False, "differs over data"),
    ],
)
def test_groups_in_words(axes: ReplicaAxes | None, blocks: list[list[int]], sharded: bool, text: str) -> None:
    assert shown_groups(partition(blocks), axes, sharded=sharded) == text


@pytest.mark.parametrize(
    ("blocks", "text"),
    [
        ([[0, 1, 2, 3]], "data, model"),
        ([[0, 2], [1, 3]], "data {0,2}{1,3}"),
        ([[0, 3], [1, 2]], "{0,3}{1,2}"),
        ([[0], [1], [2], [3]], "{0}{1}{2}{3}"),
    ],
)
def test_axes_of_a_collective(blocks: list[list[int]], text: str) -> None:
    assert shown_axes(partition(blocks), SQUARE) == text


def test_many_replicas_stay_short() -> None:
    for within in (n for k in range(4) for n in itertools.combinations(LARGE.sizes, k)):
        found = planes(LARGE.sizes, within, range(512))
        text = shown_groups(found, LARGE)
        assert len(text) <= 40
        assert text.split(" over ")[1].split(", ") == [
            name for name in LARGE.names if (name in within) == (len(within) == 3)
        ]
        assert len(shown_axes(found, LARGE)) <= 45


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("'w' is equal inside {0,2},{1,3}, so", "'w' is equal over data {0,2}{1,3}, so"),
        ("a sum over {0,1}{2,3} of it", "a sum over model {0,1}{2,3} of it"),
        ("replicated_all_reduce, groups {0,1}{2,3}", "replicated_all_reduce, groups over model {0,1}{2,3}"),
        ("the mean over {0,1,2,3} of it", "the mean over data, model of it"),
        ("equal inside {0,3}", "equal inside {0,3}"),
        ("equal inside {0,9}", "equal inside {0,9}"),
        ("equal inside {0,0}", "equal inside {0,0}"),
        ("'p{0,1}{2,3}' differs", "'p{0,1}{2,3}' differs"),
        ("equal nowhere", "equal nowhere"),
    ],
)
def test_groups_in_texts_of_the_analysis(text: str, expected: str) -> None:
    assert named_groups(text, SQUARE) == expected
    assert named_groups(text, None) == text
