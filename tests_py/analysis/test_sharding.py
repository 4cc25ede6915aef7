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


@pytest.mark.parametrize(
    ("stride", "size", "shards", "expect"),
    [
        (1, 4, 4, ["{0} {1} {2} {3}", "{4} {5} {6} {7}"]),
        (1, 4, 2, ["{0,2} {1,3}", "{4,6} {5,7}"]),
        (2, 4, 4, ["{0} {2} {4} {6}", "{1} {3} {5} {7}"]),
        (1, 8, 8, ["{0} {1} {2} {3} {4} {5} {6} {7}"]),
    ],
)
def test_shards_are_columns(stride: int, size: int, shards: int, expect: list[str]) -> None:
    """Each replica's shard is the part of the value that its column says."""
    ir = popsr.Ir(replication=8)
    groups = ir.replica_grouping(stride=stride, group_size=size)
    data = np.arange(len(expect) * 16, dtype=np.float32).reshape(groups.num_groups, 16)
    with ir.main_graph:
        value = data if len(expect) > 1 else data[0]
        w, shard = popsr.replica_sharded_variable(
            value, popsr.float32, "w", replica_grouping=groups, shard_over=shards
        )
        out = popsr.d2h_stream(shard.shape, popsr.float32, "out")
        popsr.ops.host_store(out, shard)
    lines = str(visualize_sharding(w)).splitlines()
    count = f"{len(expect)} group{'' if len(expect) == 1 else 's'}"
    assert lines[0] == f"w: {count} × {shards} shards of float32[16] on 8 replicas"
    assert [" ".join(line.strip("│").replace("│", " ").split()) for line in lines[2::2]] == expect
    with popsr.Session(ir) as session:
        held = session.run()[out]
    for row, texts in enumerate(expect):
        for column, text in enumerate(texts.split()):
            for replica in read_set(text):
                assert np.array_equal(held[replica], data[row].reshape(shards, -1)[column])


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
