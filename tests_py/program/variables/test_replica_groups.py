"""ReplicaGrouping against tables, a transcript, and groups made the obvious way."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import popsr as popxl
from popsr import errors
from popsr.replicas import CommGroup, CommGroupType, Partition, ReplicaGrouping
from tests_py.support.oracles.groups import (
    by_first_member,
    digits,
    from_digits,
    groupings,
    strided,
    valid_strides,
)

All, Consecutive, Orthogonal, Ungrouped = CommGroupType
Replica, Argument = errors.ReplicaError, errors.ArgumentTypeError


# The notebook

NOTEBOOK = """\
#######################################
ReplicaGrouping(num_replicas=8, stride=1, group_size=4, num_groups=2)
Assignment:  [0, 0, 0, 0, 1, 1, 1, 1]
 Group 0 :  [0 1 2 3]
 Group 1 :  [4 5 6 7]
#######################################
ReplicaGrouping(num_replicas=8, stride=2, group_size=2, num_groups=4)
Assignment:  [0, 1, 0, 1, 2, 3, 2, 3]
 Group 0 :  [0 2]
 Group 1 :  [1 3]
 Group 2 :  [4 6]
 Group 3 :  [5 7]
#######################################
ReplicaGrouping(num_replicas=8, stride=4, group_size=2, num_groups=4)
Assignment:  [0, 1, 2, 3, 0, 1, 2, 3]
 Group 0 :  [0 4]
 Group 1 :  [1 5]
 Group 2 :  [2 6]
 Group 3 :  [3 7]
#######################################
ReplicaGrouping(num_replicas=8, stride=1, group_size=2, num_groups=4)
Assignment:  [0, 0, 1, 1, 2, 2, 3, 3]
 Group 0 :  [0 1]
 Group 1 :  [2 3]
 Group 2 :  [4 5]
 Group 3 :  [6 7]
#######################################
ReplicaGrouping(num_replicas=8, stride=2, group_size=4, num_groups=2)
Assignment:  [0, 1, 0, 1, 0, 1, 0, 1]
 Group 0 :  [0 2 4 6]
 Group 1 :  [1 3 5 7]
"""
NOTEBOOK_TRANSPOSE = """\
#######################################
ReplicaGrouping(num_replicas=8, stride=2, group_size=4, num_groups=2)
Assignment:  [0, 1, 0, 1, 0, 1, 0, 1]
 Group 0 :  [0 2 4 6]
 Group 1 :  [1 3 5 7]
#######################################
ReplicaGrouping(num_replicas=8, stride=1, group_size=2, num_groups=4)
Assignment:  [0, 0, 1, 1, 2, 2, 3, 3]
 Group 0 :  [0 1]
 Group 1 :  [2 3]
 Group 2 :  [4 5]
 Group 3 :  [6 7]
"""


def print_rg(ipu_indices: Any, rg: Any) -> None:
    """As in the notebook about ReplicaGrouping."""
    print("#######################################")
    print(rg)
    print("Assignment: ", rg.assignment)
    for i in range(rg.num_groups):
        print(f" Group {i} : ", ipu_indices[np.where(np.asarray(rg.assignment) == i)])


def test_the_notebook_prints_its_groups(capsys: pytest.CaptureFixture[str]) -> None:
    ir = popxl.Ir(replication=8)
    ipu_indices = np.arange(0, 8)
    for rg in (
        ir.replica_grouping(stride=1, group_size=4),
        ir.replica_grouping(stride=2, group_size=2),
        ir.replica_grouping(stride=4),
        ir.replica_grouping(group_size=2),
        ir.replica_grouping(stride=2, group_size=4),
    ):
        print_rg(ipu_indices, rg)
    assert capsys.readouterr().out == NOTEBOOK


def test_the_notebook_prints_its_transpose(capsys: pytest.CaptureFixture[str]) -> None:
    rg = popxl.Ir(replication=8).replica_grouping(stride=2, group_size=4)
    print_rg(np.arange(8), rg)
    print_rg(np.arange(8), rg.transpose())
    assert capsys.readouterr().out == NOTEBOOK_TRANSPOSE


# ReplicaGrouping

# Replicas, arguments, assignment, assignment of the transpose, true if that is const.
STRIDED = [
    (8, {}, "00000000", "01234567", True),
    (8, {"stride": 2}, "01010101", "00112233", True),
    (8, {"stride": 4}, "01230123", "00001111", True),
    (8, {"stride": 8}, "01234567", "00000000", True),
    (8, {"stride": 2, "group_size": 2}, "01012323", "00110011", False),
    (12, {"stride": 2, "group_size": 3}, "010101232323", "001122001122", False),
    (12, {"stride": 3, "group_size": 2}, "012012345345", "000111000111", False),
    (16, {"stride": 2, "group_size": 4}, "0101010123232323", "0011223300112233", False),
]


@pytest.mark.parametrize(("n", "args", "assignment", "transposed", "is_const"), STRIDED)
def test_from_stride_and_size(
    n: int, args: dict[str, int], assignment: str, transposed: str, is_const: bool
) -> None:
    rg = popxl.Ir(replication=n).replica_grouping(**args)
    assert digits(rg.assignment) == assignment
    assert rg.is_const
    assert digits(rg.transpose().assignment) == transposed
    assert rg.transpose().is_const is is_const
    assert rg.const_rg == rg
    assert (rg.to_device_map, rg.to_host_map) == (None, None)
    assert rg == from_digits(assignment)


# Assignment, const_rg, to_device_map, to_host_map, transpose, true if that is const.
VARYING = [
    ("00110011", "00112233", "0101", "01", "01012323", True),
    ("00111100", "00112233", "0110", "01", "01012323", True),
    ("0110", "0123", "0110", "01", "0011", True),
    ("010011", "012345", "010011", "01", "001212", False),
    ("01100110", "01234567", "01100110", "01", "00112233", True),
    ("00011110", "01234567", "00011110", "03", "01201233", False),
]


@pytest.mark.parametrize(("assignment", "const", "to_device", "to_host", "transposed", "is_const"), VARYING)
def test_from_an_assignment_of_varying_stride(
    assignment: str, const: str, to_device: str, to_host: str, transposed: str, is_const: bool
) -> None:
    rg = from_digits(assignment)
    assert not rg.is_const
    assert digits(rg.const_rg.assignment) == const
    assert digits(rg.to_device_map) == to_device
    assert digits(rg.to_host_map) == to_host
    assert digits(rg.transpose().assignment) == transposed
    assert rg.transpose().is_const is is_const
    assert repr(rg) == f"ReplicaGrouping(assignment=[{', '.join(assignment)}])"
    with pytest.raises(
        errors.UnsupportedError, match=r"^stride: the grouping has no constant stride, got Rep"
    ):
        _ = rg.stride


@pytest.mark.parametrize("n", [1, 2, 4, 6, 8, 12, 16])
def test_every_stride_and_size_gives_the_groups_of_the_definition(n: int) -> None:
    ir = popxl.Ir(replication=n)
    for stride, size in valid_strides(n):
        rg, groups = ir.replica_grouping(stride, size), strided(n, stride, size)
        assert rg.groups == groups
        assert (rg.num_replicas, rg.num_groups, rg.group_size) == (n, len(groups), size)
        assert rg.stride == (1 if size == 1 else stride)
        for g, group in enumerate(groups):
            assert rg.members(g) == group
            assert [rg.assignment[r] for r in group] == [g] * size
        assert repr(rg) == (
            f"ReplicaGrouping(num_replicas={n}, stride={rg.stride}, group_size={size}, num_groups={n // size})"
        )


def test_one_replica_a_group_is_accepted() -> None:
    assert from_digits("0123") == popxl.Ir(replication=4).replica_grouping(stride=4)
    assert from_digits("0").groups == ((0,),)
    assert type(from_digits("0011").group_size) is int


@given(groupings())
def test_laws_of_any_grouping(rg: ReplicaGrouping) -> None:
    groups = rg.groups
    assert sorted(itertools.chain(*groups)) == list(range(rg.num_replicas))
    assert groups == by_first_member(groups)
    assert {len(group) for group in groups} == {rg.group_size}
    gaps = {b - a for group in groups for a, b in itertools.pairwise(group)}
    assert rg.is_const == (len(gaps) <= 1)
    assert ReplicaGrouping.from_assignment(rg.assignment) == rg
    assert hash(ReplicaGrouping.from_assignment(rg.assignment)) == hash(rg)
    assert rg.partition == Partition.from_labels(rg.assignment)
    assert rg.partition.blocks == groups


@given(groupings())
def test_transposed_groups_hold_the_members_of_one_position(rg: ReplicaGrouping) -> None:
    transposed = rg.transpose()
    assert transposed.groups == by_first_member(zip(*rg.groups, strict=True))
    assert (transposed.num_groups, transposed.group_size) == (rg.group_size, rg.num_groups)
    # A replica is found by its group and its group across, whichever comes first.
    assert (rg.partition & transposed.partition).num_blocks == rg.num_replicas
    assert (rg.partition | transposed.partition).num_blocks == 1


@given(groupings())
def test_const_rg_is_the_coarsest_refinement_at_the_smallest_stride(rg: ReplicaGrouping) -> None:
    n, owner = rg.num_replicas, rg.assignment
    stride = min((b - a for group in rg.groups for a, b in itertools.pairwise(group)), default=1)
    candidates = [strided(n, s, g) for s, g in valid_strides(n) if s == stride or g == 1]
    fitting = [parts for parts in candidates if all(len({owner[r] for r in part}) == 1 for part in parts)]
    const = rg.const_rg
    assert const.groups == min(fitting, key=len)
    assert const.is_const
    assert const.partition.refines(rg.partition)
    if rg.is_const:
        assert (rg.to_device_map, rg.to_host_map) == (None, None)
        return
    assert rg.to_device_map == [owner[part[0]] for part in const.groups]
    assert rg.to_host_map == [const.assignment[group[0]] for group in rg.groups]


@given(groupings(), groupings())
def test_groupings_are_equal_as_their_partitions_are(a: ReplicaGrouping, b: ReplicaGrouping) -> None:
    same = a.groups == b.groups
    assert (a == b) is same
    assert (a != b) is not same
    assert (a.partition == b.partition) is same


# Tables

TABLES = {
    CommGroup(All): """\
Group | Replicas
------+-----------------------------------------------------
    0 | 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15""",
    CommGroup(Consecutive, 4): """\
Group | Replicas
------+---------------
    0 | 0, 1, 2, 3
    1 | 4, 5, 6, 7
    2 | 8, 9, 10, 11
    3 | 12, 13, 14, 15""",
    CommGroup(Orthogonal, 4): """\
Group | Replicas
------+-------------
    0 | 0, 4, 8, 12
    1 | 1, 5, 9, 13
    2 | 2, 6, 10, 14
    3 | 3, 7, 11, 15""",
    CommGroup(Ungrouped): """\
Group | Replicas
------+---------
    0 | 0
    1 | 1
    2 | 2
  ... | ...
   14 | 14
   15 | 15""",
}


@pytest.mark.parametrize("group", TABLES, ids=str)
def test_tables_of_sixteen_replicas(group: CommGroup) -> None:
    assert group.table(16) == TABLES[group]
    assert group.to_replica_grouping(16).table() == TABLES[group]


def test_long_tables_are_shortened() -> None:
    text = popxl.Ir(replication=4096).replica_grouping(64).table()
    assert len(text.splitlines()) == 8
    assert max(map(len, text.splitlines())) < 50
    assert text.splitlines()[-1] == "   63 | 63, 127, 191, ..., 4031, 4095"


# Bad input


def grouping(n: int, *args: Any, **kwargs: Any) -> Callable[[], Any]:
    return lambda: popxl.Ir(replication=n).replica_grouping(*args, **kwargs)


def assignment(*groups: Any) -> Callable[[], Any]:
    return lambda: popxl.Ir(replication=4).replica_grouping_from_assignments(groups)


RG = popxl.Ir(replication=8).replica_grouping(2, 2)
STRIDE, TILE = "stride does not tile the replicas, got stride", "groups do not tile the replicas, got stride"
FIRST = "groups are not numbered from 0 in order of first appearance"
BAD: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (grouping(8, 0), Replica, f"replica_grouping: {STRIDE} 0 for 8 replicas, expected a divisor of 8"),
    (grouping(8, 0, 2), Replica, STRIDE),
    (grouping(8, -1), Replica, STRIDE),
    (grouping(8, 3), Replica, STRIDE),
    (grouping(8, 16), Replica, STRIDE),
    (grouping(4, 3, 1), Replica, STRIDE),
    (grouping(8, 4, 4), Replica, f"{TILE} 4 and group_size 4 for 8"),
    (grouping(8, 1, 3), Replica, TILE),
    (grouping(8, 2, 3), Replica, TILE),
    (grouping(8, 1, 0), Replica, TILE),
    (grouping(8, 1, -2), Replica, TILE),
    (grouping(8, group_size=9), Replica, TILE),
    (grouping(12, 4, 2), Replica, TILE),
    (grouping(4, 4, 2), Replica, TILE),
    (grouping(8, 2.0), Argument, "stride is not an int"),
    (grouping(8, 1, True), Argument, "group_size is not an int"),
    (assignment(0, 0, 0, 1), Replica, r"groups differ in size, got \[0, 0, 0, 1\] with sizes 1 to 3"),
    (assignment(1, 1, 0, 0), Replica, rf"{FIRST}, got \[1, 1, 0, 0\] with group 1 at replica 0"),
    (assignment(0, 2, 0, 2), Replica, FIRST),
    (assignment(0, 0, -1, -1), Replica, FIRST),
    (assignment(0, 0, 1), Replica, "no group for each replica"),
    (assignment(0, 0, 1, 1, 2, 2), Replica, "no group for each replica"),
    (assignment(0, 0, 1, None), Argument, "assignment is not an int"),
    (lambda: ReplicaGrouping.from_assignment([]), Replica, "empty assignment"),
    (lambda: ReplicaGrouping.from_assignment(3), Argument, "is not a sequence of ints"),  # type: ignore[arg-type]
    (lambda: ReplicaGrouping.from_stride(0), Replica, "replica count out of range, got 0"),
    (lambda: ReplicaGrouping.from_stride(1 << 40), Replica, "replica count out of range"),
    (lambda: ReplicaGrouping.from_stride("8"), Argument, "replicas is not an int"),  # type: ignore[arg-type]
    (lambda: ReplicaGrouping(), errors.StateError, "replica_grouping: cannot be constructed"),
    (lambda: ReplicaGrouping(8, group_size=2), RuntimeError, "cannot be constructed"),  # type: ignore[call-arg]
    (lambda: RG == 3, Argument, "compares with a ReplicaGrouping only, got 3"),
    (lambda: RG != [0], TypeError, "compares with a ReplicaGrouping only, got \\[0\\]"),
    (lambda: RG.members(4), Replica, "there is no such group, got 4, expected 0 to 3"),
    (lambda: RG.members(-1), Replica, "there is no such group"),
    (lambda: RG.members(1.0), Argument, "group is not an int"),  # type: ignore[arg-type]
    (lambda: RG.transpose().stride, NotImplementedError, "no constant stride"),
]


@pytest.mark.parametrize(
    ("call", "error", "text"), BAD, ids=[f"{i}-{text[:40]}" for i, (_, _, text) in enumerate(BAD)]
)
def test_bad_input_is_refused_in_one_line(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(errors.Error, match=text) as caught:
        call()
    assert isinstance(caught.value, error)
    assert "\n" not in str(caught.value)
    assert not str(caught.value).endswith(".")


def test_long_assignments_are_shortened_in_messages() -> None:
    with pytest.raises(Replica, match=r"got \[0, 0, 0, \.\.\., 1, 1\] with sizes 400 to 600"):
        ReplicaGrouping.from_assignment([0] * 400 + [1] * 600)
