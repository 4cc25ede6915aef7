"""Pictures of the parts of variables: text, HTML, sizes and bad arguments."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import popsr
from popsr import errors
from popsr.analysis import visualize_sharding
from popsr.replicas import Partition, ReplicaGrouping
from tests_py.program.test_strips import read_set


def test_a_variable() -> None:
    ir = popsr.Ir(replication=4)
    with ir.main_graph:
        w = popsr.variable(
            np.zeros((2, 3)), popsr.float32, "w", replica_grouping=ir.replica_grouping(stride=2)
        )
    picture = visualize_sharding(w)
    assert str(picture).splitlines() == [
        "w: 2 parts of float32[3] on 4 replicas",
        "┌───────┬───────┐",
        "│ {0,2} │ {1,3} │",
        "└───────┴───────┘",
    ]
    assert repr(picture) == "ShardingPicture[w: 2 parts of float32[3] on 4 replicas: 1 × 2 boxes]"


def test_a_grid() -> None:
    picture = visualize_sharding(ReplicaGrouping.from_stride(4, 1, 1), grid=(2, 2))
    assert picture.grid == (2, 2)
    assert str(picture).splitlines()[2:5:2] == ["│ {0} │ {1} │", "│ {2} │ {3} │"]


@given(st.lists(st.integers(0, 7), min_size=1, max_size=24).map(Partition.from_labels))
def test_boxes_hold_the_blocks(partition: Partition) -> None:
    html = visualize_sharding(partition)._repr_html_()
    parts = re.findall(r"<title>part (\d+): (\{[^}]*\}), (\d+) replicas?</title>", html)
    assert [int(number) for number, _, _ in parts] == [*range(partition.num_blocks)]
    assert [tuple(read_set(members)) for _, members, _ in parts] == [*partition.blocks]


def test_many_parts_are_counted() -> None:
    picture = visualize_sharding(ReplicaGrouping.from_stride(4096, 1, 2), grid=(32, 64))
    assert str(picture).splitlines()[-2:] == ["… 28 more rows", "… 48 more columns"]
    assert len(picture._repr_html_().encode()) < 20_000


PAIRS = ReplicaGrouping.from_stride(4, 1, 2)
BAD: list[tuple[Any, Any, type[Exception], str]] = [
    ("w", None, errors.ArgumentTypeError, "visualize_sharding: value"),
    (PAIRS, 2, errors.ArgumentTypeError, "grid is not a sequence of two ints"),
    (PAIRS, (2,), errors.ReplicaError, "grid has 1 sides, expected 2"),
    (PAIRS, (0, 2), errors.AttributeValueError, "a side of grid: got 0"),
    (PAIRS, (2, 2), errors.ReplicaError, "got 2 × 2 boxes, expected 2"),
]


@pytest.mark.parametrize(("value", "grid", "error", "text"), BAD)
def test_bad_arguments(value: Any, grid: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        visualize_sharding(value, grid=grid)


def test_pictures_are_made_by_the_function() -> None:
    with pytest.raises(errors.ArgumentTypeError, match="cannot be constructed"):
        popsr.analysis.ShardingPicture()
