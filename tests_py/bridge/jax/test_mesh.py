"""Axes of meshes as groups of replicas, beside NumPy's own reshapes."""

import itertools

import numpy as np
import pytest

from popsr.bridge.jax._mesh import Spread

SIZES = {"a": 2, "b": 3, "c": 4}
CUBE = np.arange(24).reshape(2, 3, 4)
AXES = [axes for count in (1, 2, 3) for axes in itertools.permutations(SIZES, count)]


def moved(axes: tuple[str, ...]) -> np.ndarray:
    """Replicas by group, members in the order of indices along the axes."""
    order = [*SIZES]
    rest = [order.index(axis) for axis in order if axis not in axes]
    return CUBE.transpose(*rest, *(order.index(axis) for axis in axes)).reshape(-1, Spread(SIZES).size(axes))


@pytest.mark.parametrize("axes", AXES)
def test_groups_and_indices(axes: tuple[str, ...]) -> None:
    spread, groups = Spread(SIZES), moved(axes)
    assert {frozenset(group) for group in spread.group(axes).groups} == {
        frozenset(row.tolist()) for row in groups
    }
    index = spread.index(axes)
    for row in groups:
        assert [index[replica] for replica in row] == [*range(len(row))]
        members = sorted(row.tolist())
        assert [members[place] for place in spread.member_order(axes)] == row.tolist()
        assert spread.in_order(axes) == (members == row.tolist())


def test_parts_of_groups() -> None:
    groups = Spread(SIZES).parts(["c"], [[0, 3], [1, 2]]).groups
    assert groups[:2] == ((0, 3), (1, 2))
    assert len(groups) == 12


def test_parts_of_arrays() -> None:
    spread = Spread(SIZES)
    whole = np.arange(8 * 3).reshape(8, 3)
    spec = (("c", "a"), ("b",))
    found = [whole[spread.part(spec, whole.shape, replica)] for replica in range(24)]
    want = {
        (a, b, c): whole[2 * c + a : 2 * c + a + 1, b : b + 1]
        for a, b, c in itertools.product(range(2), range(3), range(4))
    }
    for (a, b, c), part in want.items():
        np.testing.assert_array_equal(found[CUBE[a, b, c]], part)
    assert spread.shards(spec).num_groups == 24
    assert spread.shards(((), ("b",))).groups[0] == tuple(CUBE[:, 0].reshape(-1).tolist())
