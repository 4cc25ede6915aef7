"""Parts of a value of one device that a replica has, found by their elements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from popsr._support.fields import TOP, Array, Numbers, select
from popsr.bridge._same._regions import Lines, region_of

WHOLE = np.arange(1, 25, dtype=np.int64).reshape(4, 6)
PADDED = np.pad(WHOLE, ((1, 1), (0, 0)))
FOUND: dict[str, tuple[Array, Array, list[Iterable[int]]]] = {
    "itself": (WHOLE, WHOLE, [range(4), range(6)]),
    "rows": (WHOLE[1:3], WHOLE, [range(1, 3), range(6)]),
    "a block": (WHOLE[2:, 3:5], WHOLE, [range(2, 4), range(3, 5)]),
    "every other column": (WHOLE[:, ::2], WHOLE, [range(4), range(0, 6, 2)]),
    "a row twice": (WHOLE[[1, 1]], WHOLE, [[1, 1], range(6)]),
    "rows with padding": (PADDED[0:3], PADDED, [range(3), range(6)]),
    "one number everywhere": (np.zeros((2, 2)), np.zeros((2, 2)), [range(2), range(2)]),
}
NONE = {
    "rows turned around": (WHOLE[::-1], WHOLE),
    "columns rolled": (np.roll(WHOLE, 1, 1), WHOLE),
    "other elements": (WHOLE + 100, WHOLE),
    "more rows": (np.tile(WHOLE, (2, 1)), WHOLE),
    "padding inside": (np.pad(WHOLE[1:2], ((1, 1), (0, 0))), PADDED),
    "padding before another row": (PADDED[[0, 2, 3]], PADDED),
    "other axes": (WHOLE[0], WHOLE),
    "no element": (WHOLE[:0], WHOLE),
    "part of one number everywhere": (np.zeros((1, 2)), np.zeros((2, 2))),
    "a mask of another block": (np.array([[1, 0], [7, 8]]), np.array([[1, 2], [7, 8]])),
}


@pytest.mark.parametrize("name", FOUND)
def test_a_part_is_found(name: str) -> None:
    part, whole, indices = FOUND[name]
    found = region_of(part, whole)
    assert found is not None
    assert [each.tolist() for each in found] == [[*each] for each in indices]


@pytest.mark.parametrize("name", NONE)
def test_other_arrays_are_not_found(name: str) -> None:
    assert region_of(*NONE[name]) is None


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=4), st.lists(st.integers(0, 5), min_size=1, max_size=6)
)
def test_lines_are_found_in_their_order_alone(rows: Sequence[int], columns: Sequence[int]) -> None:
    part = WHOLE[np.ix_(rows, columns)]
    ascends = list(rows) == sorted(rows) and list(columns) == sorted(columns)
    assert (region_of(part, WHOLE) is not None) == ascends


def test_floats_and_infinite_fillers() -> None:
    """Fillers tell no place, and have to stand where they do."""
    scores = Numbers.draw((4, 4), "scores", 0, TOP)
    whole = _masked(scores, np.tril(np.ones((4, 4), bool)))
    lines = Lines()
    lines.add(whole, "where", "model.py:3")
    lines.add(scores, "matmul", "model.py:3")
    part = scores.at(np.arange(16).reshape(4, 4)[2:, 2:])
    region = lines.region(part, "matmul", "model.py:3")
    assert region is not None
    right, wrong = (_masked(part, mask) for mask in (np.tril(np.ones((2, 2), bool)), np.ones((2, 2), bool)))
    assert lines.has_at(right, region, "where", "model.py:3")
    assert lines.has_at(wrong, region, "where", "model.py:3") is False
    assert lines.has_at(wrong, region, "exp", "model.py:3") is None
    assert lines.region(part, "matmul", "model.py:4") is None


def _masked(scores: Numbers, mask: Array) -> Numbers:
    return select(mask, scores, scores.constant(-1e30))
