"""Strips: SVG and text of any partition say the same as the partition itself, read back by parsers of their own."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import popsr
from popsr import ops
from popsr._support.text.replica_sets import set_text, strip_text
from popsr._support.text.strip import strip_parts, strip_svg
from popsr.replicas import Partition, ReplicaGrouping
from tests_py import ROOT

partitions = st.integers(1, 128).flatmap(
    lambda n: st.lists(st.integers(0, n - 1), min_size=n, max_size=n).map(Partition.from_labels)
)
meshes = st.lists(st.tuples(st.integers(2, 6), st.booleans()), min_size=1, max_size=4)


def read_set(text: str) -> list[int]:
    """The members of ``{0,1,4,6,…,20}``."""
    members: list[int] = []
    items = text.strip("{}").split(",")
    for i, item in enumerate(items):
        if item != "…" and i and items[i - 1] == "…":
            members += range(2 * members[-1] - members[-2], int(item) + 1, members[-1] - members[-2])
        elif item != "…":
            members.append(int(item))
    return members


def read_text(text: str) -> Partition:
    """The partition of a text of a regular one, or of one in full."""
    if re.fullmatch(r"(\{[\d,]+\})+", text):
        sets = [read_set(each) for each in re.findall(r"\{[^}]*\}", text)]
        return Partition.from_labels([next(i for i, s in enumerate(sets) if r in s) for r in all_of(sets)])
    *_, replicas = re.findall(r"(\d+) replicas", text)
    n = int(replicas)
    if "equal on all" in text:
        return Partition.from_labels([0] * n)
    if "each of" in text:
        return Partition.from_labels(range(n))
    if found := re.search(r"blocks of (\d+), stride (\d+) of", text):
        size, stride = map(int, found.groups())
        return ReplicaGrouping.from_stride(n, stride, size).partition
    mesh = [(int(size), kind == "equal") for size, kind in re.findall(r"(\d+) (equal|differ)", text)]
    return of_mesh(mesh)


def all_of(sets: list[list[int]]) -> list[int]:
    return sorted(r for members in sets for r in members)


def of_mesh(mesh: list[tuple[int, bool]]) -> Partition:
    labels: list[tuple[int, ...]] = [()]
    for size, equal in mesh:
        labels = [(*label, -1 if equal else i) for i in range(size) for label in labels]
    numbers = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    return Partition.from_labels([numbers[label] for label in labels])


@given(partitions)
def test_svg_names_the_replicas_of_each_block(partition: Partition) -> None:
    root = ElementTree.fromstring(strip_svg(partition))
    titles = [each.text or "" for each in root.iter("title")][1:]
    regular = [title for title in titles if not title.startswith("block ")]
    if regular:  # teeth: the whole bar's title is exact
        assert read_text(root.get("aria-label") or "") == partition
        return
    blocks = [tuple(read_set(title[title.index("{") : title.index("}")])) for title in titles]
    assert sorted(blocks) == [*partition.blocks]
    for title, members in zip(titles, blocks, strict=True):
        count = f"{len(members)} replica{'' if len(members) == 1 else 's'}"
        assert re.fullmatch(rf"block \d+ of {partition.num_blocks}: .*, {count}", title)


@given(meshes)
def test_text_of_regular_partitions_reads_back(mesh: list[tuple[int, bool]]) -> None:
    partition = of_mesh(mesh)
    text = strip_text(partition)
    assert len(text) <= 200
    assert read_text(text) == partition
    assert len(strip_svg(partition)) < 15_000


@given(st.sets(st.integers(0, 300), min_size=1))
def test_sets_read_back(members: set[int]) -> None:
    assert read_set(set_text(sorted(members))) == sorted(members)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 4096), st.integers(1, 4096), st.randoms(use_true_random=False))
def test_any_number_of_replicas(n: int, blocks: int, random: Any) -> None:
    partition = Partition.from_labels([random.randrange(blocks) for _ in range(n)])
    assert len(strip_text(partition)) <= 200
    assert len(strip_text(partition, limit=80)) <= 80
    svg = strip_svg(partition)
    assert len(svg.encode()) < 30_000
    ElementTree.fromstring(svg)


GROUPINGS = [
    ((4096, 1, 2), "{0,1}{2,3}{4,5}… 2048 blocks of 2, stride 1 of 4096 replicas"),
    ((4096, 2048, 2), "{0,2048}{1,2049}{2,2050}… 2048 blocks of 2, stride 2048 of 4096 replicas"),
    ((4096, 1, 4096), "{0,1,…,4095} 1 block, equal on all 4096 replicas"),
    ((4096, 1, 1), "{0}{1}… 4096 blocks of 1, each of 4096 replicas differs"),
    ((8, 2, 2), "{0,2}{1,3}{4,6}{5,7}"),
    ((2, 1, 1), "{0}{1}"),
]


@pytest.mark.parametrize(("stride", "text"), GROUPINGS)
def test_text(stride: tuple[int, int, int], text: str) -> None:
    grouping = ReplicaGrouping.from_stride(*stride)
    assert strip_text(grouping) == strip_text(grouping.partition) == text


def test_irregular_text() -> None:
    one_out = Partition.from_labels([0] * 1000 + [1] + [0] * 3095)
    assert strip_text(one_out) == (
        "{0,1,…,999,1001,1002,…,4095}{1000} 2 blocks: 1 of 1, 1 of 4095, of 4096 replicas"
    )


def test_ranks_and_titles() -> None:
    root = ElementTree.fromstring(strip_svg(Partition.from_labels([0, 0, 1, 1]), ranks=[3, 1], title="<w>"))
    titles = [each.text for each in root.iter("title")]
    assert titles[0] == "<w>: {0,1}{2,3}"
    assert titles[-2:] == ["rank 0: {0,1,2}, 3 replicas", "rank 1: {3}, 1 replica"]


def test_a_stride_is_drawn_as_a_repetition() -> None:
    """One part for each row of 1,024 replicas: the same blocks four times."""
    root = ElementTree.fromstring(strip_svg(ReplicaGrouping.from_stride(4096, 1024, 4)))
    titles = [each.text or "" for each in root.iter("title")][1:]
    assert [title.split(":")[0] for title in titles] == [
        f"replicas {first} to {first + 1023}" for first in range(0, 4096, 1024)
    ]


def test_objects_show_strips() -> None:
    ir = popsr.Ir(replication=4)
    groups = ir.replica_grouping(stride=2)
    with ir.main_graph:
        w = popsr.variable([[1.0], [2.0]], popsr.float32, "w", replica_grouping=groups)
        ops.relu(w)
    facts = popsr.analysis.analyze(ir)
    objects: list[Any] = [ir, w, groups, facts.partition(w), popsr.Session(ir)]
    for each in objects:
        assert 'class="strip"' in each._repr_html_()


PICTURE = ROOT / "docs" / "_static" / "strips.svg"
SHOWN = [(8, 1, 8), (8, 1, 2), (8, 2, 4), (8, 4, 2), (8, 1, 1), (4096, 1, 2), (4096, 512, 8)]


def picture_of_docs() -> str:
    """Strips below each other, with their texts beside them; ``python -m tests_py.program.test_strips`` writes it."""
    rows = []
    for i, stride in enumerate(SHOWN):
        partition = ReplicaGrouping.from_stride(*stride).partition
        rows.append(
            f'<g transform="translate(0 {22 * i + 4})">{strip_parts(partition, 240)}'
            f'<text x="256" y="11">{strip_text(partition)}</text></g>\n'
        )
    height = 22 * len(SHOWN)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 920 {height}" width="920" height="{height}" '
        'role="img" aria-label="Strips of seven partitions, with their texts">\n'
        "<style>svg { color: #1f2328; font: 12px ui-monospace, monospace; fill: currentColor; }\n"
        "@media (prefers-color-scheme: dark) { svg { color: #e6edf3; } }</style>\n"
        f"{''.join(rows)}</svg>\n"
    )


def test_the_picture_of_the_docs_is_what_is_drawn() -> None:
    assert PICTURE.read_text() == picture_of_docs()


if __name__ == "__main__":
    PICTURE.write_text(picture_of_docs())
