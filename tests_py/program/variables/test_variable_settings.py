"""CommGroup and VariableSettings against their definitions, PopART's rules, and groups made the obvious way."""

from __future__ import annotations

import itertools
import pydoc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import popsr
from popsr import errors
from popsr.ops import collectives
from popsr.replicas import CommGroup, CommGroupType, ReplicaGrouping, VariableRetrievalMode, VariableSettings
from tests_py.support.oracles.groups import (
    Groups,
    by_first_member,
    comm_groups,
    from_digits,
    groupings,
    strided,
    valid_comm_groups,
    valid_strides,
)

All, Consecutive, Orthogonal, Ungrouped = CommGroupType
OnePerGroup, AllReplicas, AllReduceReplicas = VariableRetrievalMode
Replica, Argument = errors.ReplicaError, errors.ArgumentTypeError


# CommGroup


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, 8, 12, 16])
def test_comm_groups_by_their_definition(n: int) -> None:
    for group in valid_comm_groups(n):
        rg = group.to_replica_grouping(n)
        assert rg.groups == comm_groups(group, n), group
        back = CommGroup.from_replica_grouping(rg)
        assert back.to_replica_grouping(n) == rg
        assert CommGroup.from_replica_grouping(back.to_replica_grouping(n)) == back
        across = group.complement(n)
        assert across.to_replica_grouping(n).groups == by_first_member(zip(*rg.groups, strict=True))
        assert across.complement(n).to_replica_grouping(n) == rg


def test_from_replica_grouping_takes_the_first_that_fits() -> None:
    for n in range(1, 17):
        for stride, size in valid_strides(n):
            rg = popsr.Ir(replication=n).replica_grouping(stride, size)
            if size == 1:
                expect = CommGroup(Ungrouped, 0)
            elif size == n:
                expect = CommGroup(All, 0)
            elif stride == n // size:
                expect = CommGroup(Orthogonal, size)
            elif stride == 1:
                expect = CommGroup(Consecutive, size)
            else:
                with pytest.raises(Replica, match=r"^comm_group: no CommGroup has these groups, got Replica"):
                    CommGroup.from_replica_grouping(rg)
                continue
            assert CommGroup.from_replica_grouping(rg) == expect


@pytest.mark.parametrize("n", [1, 4, 12])
def test_complements(n: int) -> None:
    for k in (k for k in range(1, n + 1) if n % k == 0):
        assert CommGroup(Consecutive, k).complement(n) == CommGroup(Orthogonal, n // k)
        assert CommGroup(Orthogonal, k).complement(n) == CommGroup(Consecutive, n // k)
    assert CommGroup(All, 7).complement(n) == CommGroup(Ungrouped, 0)
    assert CommGroup(Ungrouped, 7).complement(n) == CommGroup(All, 0)


def test_comparison_text_and_names() -> None:
    assert CommGroup() == CommGroup(All, 0) == CommGroup(type=All, size=0)
    assert CommGroup(All, 0) != CommGroup(All, 1)
    assert CommGroup(Consecutive, 2) != CommGroup(Orthogonal, 2)
    assert CommGroup() != VariableSettings()
    assert CommGroup() != 0
    for group in valid_comm_groups(6):
        assert eval(repr(group)) == group
        assert len({group, eval(repr(group))}) == 1
    assert CommGroupType.None_ is Ungrouped
    assert CommGroup(CommGroupType.None_).type is Ungrouped
    assert CommGroup(Orthogonal, np.int64(4)).replicaGroupSize == CommGroup(Orthogonal, 4).size == 4
    assert CommGroup(Orthogonal, 4).toReplicaGrouping(8) == CommGroup(Orthogonal, 4).to_replica_grouping(8)
    assert (collectives.CommGroup, collectives.CommGroupType) == (CommGroup, CommGroupType)
    assert popsr.ReplicaGrouping is ReplicaGrouping


# VariableSettings

MODES = tuple(VariableRetrievalMode)


def all_settings(n: int) -> list[tuple[Any, Groups]]:
    """Arguments of settings, with the groups."""
    made: list[tuple[Any, Groups]] = [((group,), comm_groups(group, n)) for group in valid_comm_groups(n)]
    made += [((s, g), strided(n, s, g)) for s, g in valid_strides(n)]
    made += [
        ((popsr.Ir(replication=n).replica_grouping(s, g),), strided(n, s, g)) for s, g in valid_strides(n)
    ]
    return made


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n", [1, 2, 4, 6, 8, 12])
def test_settings_answer_by_their_groups(n: int, mode: VariableRetrievalMode) -> None:
    for args, groups in all_settings(n):
        make: Any = VariableSettings
        settings = make(*args, mode)
        count, size = len(groups), len(groups[0])
        assert settings.groups(n) == groups, settings
        assert settings.replica_grouping(n).groups == groups
        assert settings.partition(n).blocks == groups
        assert (settings.group_count(n), settings.group_size(n)) == (count, size)
        assert settings.stride(n) == (1 if size == 1 else groups[0][1] - groups[0][0])
        assert [settings.representative(n, j) for j in range(count)] == [min(group) for group in groups]
        rows = n if mode is AllReplicas else count
        assert settings.returned_count(n) == rows
        for shape in ((), (0,), (2, 3, 4), (count,), (n, 2)):
            assert settings.shape_on_host(shape, n) == ((count, *shape) if count > 1 else shape)
            assert settings.returned_shape(shape, n) == ((rows, *shape) if rows > 1 else shape)
            assert settings.shape_on_replica(settings.shape_on_host(shape, n), n) == shape


@given(groupings())
def test_settings_of_any_grouping(rg: ReplicaGrouping) -> None:
    settings, n = VariableSettings(rg, AllReplicas), rg.num_replicas
    assert settings.groups(n) == rg.groups
    assert [settings.representative(n, j) for j in range(rg.num_groups)] == [g[0] for g in rg.groups]
    assert settings.returned_count(n) == n
    assert settings.partition(n) == rg.partition


# Type, size, replicas; groups, stride, group size, representatives; rows returned by each mode.
RULES = [
    (All, 0, 12, 1, 1, 12, [0], (1, 12, 1)),
    (All, 1, 12, 1, 1, 12, [0], (1, 12, 1)),
    (Ungrouped, 0, 4, 4, 1, 1, [0, 1, 2, 3], (4, 4, 4)),
    (Consecutive, 4, 12, 3, 1, 4, [0, 4, 8], (3, 12, 3)),
    (Consecutive, 1, 2, 2, 1, 1, [0, 1], (2, 2, 2)),
    (Orthogonal, 4, 12, 3, 3, 4, [0, 1, 2], (3, 12, 3)),
    (Orthogonal, 6, 12, 2, 2, 6, [0, 1], (2, 12, 2)),
]


@pytest.mark.parametrize(("kind", "size", "n", "count", "stride", "members", "firsts", "returned"), RULES)
def test_rules_of_comm_group_settings_under_popart_names(
    kind: CommGroupType,
    size: int,
    n: int,
    count: int,
    stride: int,
    members: int,
    firsts: list[int],
    returned: tuple[int, ...],
) -> None:
    settings = VariableSettings(CommGroup(kind, size))
    assert settings.getGroupCount(n) == count
    assert settings.getStride(n) == stride
    assert settings.getRealGroupSize(n) == members
    assert [settings.getGroupRepresentative(n, j) for j in range(count)] == firsts
    assert settings.getReplicaGrouping(n) == CommGroup(kind, size).to_replica_grouping(n)
    assert settings.getSharedVariableDomain() == CommGroup(kind, size)
    assert settings.getRetrievalMode() is OnePerGroup
    by_mode = [VariableSettings(CommGroup(kind, size), mode) for mode in MODES]
    assert tuple(s.numReplicasReturningVariable(n) for s in by_mode) == returned
    full = settings.shapeOnHost([2, 3, 4], n)
    assert full == ((count, 2, 3, 4) if count > 1 else (2, 3, 4))
    assert settings.shapeOnReplica(full, n, "w") == (2, 3, 4)


def test_the_buffers_of_a_variable_of_shape_2_3_4() -> None:
    for mode, rows in ((OnePerGroup, 2), (AllReplicas, 4)):
        settings = VariableSettings(CommGroup(Consecutive, 2), mode)
        assert settings.returned_shape((2, 3, 4), 4) == (rows, 2, 3, 4)
        assert settings.shape_on_host((2, 3, 4), 4) == (2, 2, 3, 4)
    four_groups = VariableSettings(CommGroup(Consecutive, 4))
    assert four_groups.shape_on_host((2, 3, 4), 16) == (4, 2, 3, 4)


def test_the_docstring_has_the_buffers_of_each_kind_of_group() -> None:
    rows = [
        line.split("  ")
        for line in pydoc.getdoc(VariableSettings).splitlines()
        if line.startswith("CommGroup(")
    ]
    seen = set()
    for row in rows:
        text, count, *shapes = (cell.strip() for cell in row if cell.strip())
        group = eval(text)
        seen.add(group.type)
        shape, settings = (2, 3, 4), [VariableSettings(group, mode) for mode in (OnePerGroup, AllReplicas)]
        assert int(count) == settings[0].group_count(4)
        expect = [settings[0].shape_on_host(shape, 4), *(s.returned_shape(shape, 4) for s in settings)]
        assert shapes == [str(list(s)) for s in expect]
    assert seen == set(CommGroupType)


PAIRS = popsr.Ir(replication=4).replica_grouping(1, 2)
FORMS: list[tuple[Callable[[], VariableSettings], str]] = [
    (lambda: VariableSettings(), "CommGroup(CommGroupType.All, 0), OnePerGroup"),
    (lambda: VariableSettings(None), "CommGroup(CommGroupType.All, 0), OnePerGroup"),
    (lambda: VariableSettings(comm_group=None), "CommGroup(CommGroupType.All, 0), OnePerGroup"),
    (lambda: VariableSettings(replica_grouping=None), "CommGroup(CommGroupType.All, 0), OnePerGroup"),
    (lambda: VariableSettings(AllReplicas), "CommGroup(CommGroupType.All, 0), AllReplicas"),
    (lambda: VariableSettings(retrieval_mode=AllReplicas), "CommGroup(CommGroupType.All, 0), AllReplicas"),
    (
        lambda: VariableSettings(CommGroup(Orthogonal, 2)),
        "CommGroup(CommGroupType.Orthogonal, 2), OnePerGroup",
    ),
    (
        lambda: VariableSettings(CommGroup(Ungrouped), AllReduceReplicas),
        "CommGroup(CommGroupType.Ungrouped, 0), AllReduceReplicas",
    ),
    (
        lambda: VariableSettings(comm_group=CommGroup(), retrieval_mode=AllReplicas),
        "CommGroup(CommGroupType.All, 0), AllReplicas",
    ),
    (lambda: VariableSettings(2, 4), "2, 4, OnePerGroup"),
    (lambda: VariableSettings(2, 4, AllReplicas), "2, 4, AllReplicas"),
    (lambda: VariableSettings(stride=2, size=4), "2, 4, OnePerGroup"),
    (lambda: VariableSettings(np.int32(7), 1), "1, 1, OnePerGroup"),
    (lambda: VariableSettings(PAIRS), f"{PAIRS}, OnePerGroup"),
    (lambda: VariableSettings(PAIRS, AllReplicas), f"{PAIRS}, AllReplicas"),
    (lambda: VariableSettings(replica_grouping=PAIRS), f"{PAIRS}, OnePerGroup"),
]


@pytest.mark.parametrize(("make", "text"), FORMS, ids=[text for _, text in FORMS])
def test_forms_of_the_constructor(make: Callable[[], VariableSettings], text: str) -> None:
    *groups, mode = text.split(", ")
    assert repr(make()) == f"VariableSettings({', '.join(groups)}, VariableRetrievalMode.{mode})"
    assert make() == make()
    assert hash(make()) == hash(make())
    assert make().retrieval_mode is VariableRetrievalMode[mode]


def test_settings_made_of_different_things_are_different() -> None:
    different = list({repr(make()): make() for make, _ in FORMS}.values())
    different += [
        VariableSettings(1, 2),
        VariableSettings(CommGroup(Consecutive, 2)),
        VariableSettings(CommGroup(All, 1)),
    ]
    for i, j in itertools.product(range(len(different)), repeat=2):
        assert (different[i] == different[j]) is (i == j)
    assert VariableSettings(1, 2).comm_group is None
    assert VariableSettings(CommGroup(All, 1)).comm_group == CommGroup(All, 1)


# Bad input

RG = popsr.Ir(replication=8).replica_grouping(2, 2)
SMALL = "groups are too small, got"
DIVIDE, FIT = (
    "comm_group: size does not divide the replicas, got",
    "variable_settings: arguments do not fit, got",
)
BAD: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (
        lambda: CommGroup(Consecutive),
        Replica,
        f"comm_group: {SMALL} Consecutive of size 0, expected at least 1",
    ),
    (lambda: CommGroup(Orthogonal, 0), Replica, SMALL),
    (lambda: CommGroup(Orthogonal, -4), Replica, SMALL),
    (lambda: CommGroup(All, -1), Replica, f"{SMALL} All of size -1, expected at least 0"),
    (lambda: CommGroup(1, 2), Argument, r"comm_group: arguments do not fit, got \(int, int\)"),  # type: ignore[arg-type]
    (lambda: CommGroup(Consecutive, 2.0), Argument, "arguments do not fit"),  # type: ignore[arg-type]
    (lambda: CommGroup(Consecutive, 1 << 64), Argument, "arguments do not fit"),
    (
        lambda: CommGroup(Consecutive, 3).to_replica_grouping(8),
        Replica,
        f"{DIVIDE} Consecutive of size 3 for 8",
    ),
    (lambda: CommGroup(Orthogonal, 3).to_replica_grouping(8), Replica, DIVIDE),
    (lambda: CommGroup(Orthogonal, 16).to_replica_grouping(8), Replica, DIVIDE),
    (lambda: CommGroup(Orthogonal, 3).complement(8), Replica, DIVIDE),
    (lambda: CommGroup(Consecutive, 3).table(8), Replica, DIVIDE),
    (lambda: CommGroup().to_replica_grouping(0), Replica, "replica count out of range"),
    (lambda: CommGroup().complement("8"), Argument, "replicas is not an int"),  # type: ignore[arg-type]
    (lambda: CommGroup.from_replica_grouping(RG), Replica, "no CommGroup has these groups"),
    (lambda: CommGroup.from_replica_grouping(from_digits("0110")), Replica, "no CommGroup has these groups"),
    (lambda: CommGroup.from_replica_grouping(8), Argument, "got 8, expected a ReplicaGrouping"),  # type: ignore[arg-type]
    (lambda: VariableSettings(0, 2), Replica, f"variable_settings: {SMALL} stride 0 and size 2"),
    (lambda: VariableSettings(2, 0), Replica, SMALL),
    (lambda: VariableSettings(0, 1), Replica, SMALL),
    (lambda: VariableSettings(-1, 2), Replica, SMALL),
    (lambda: VariableSettings(2), Argument, rf"{FIT} \(int\)"),  # type: ignore[call-overload]
    (lambda: VariableSettings(True, 2), Argument, rf"{FIT} \(bool, int\)"),
    (lambda: VariableSettings("one_per_group"), Argument, rf"{FIT} \(str\)"),  # type: ignore[call-overload]
    (lambda: VariableSettings(CommGroup(), 1), Argument, rf"{FIT} \(CommGroup, int\)"),  # type: ignore[call-overload]
    (lambda: VariableSettings(AllReplicas, CommGroup()), Argument, FIT),  # type: ignore[call-overload]
    (lambda: VariableSettings(comm_group=CommGroup(), replica_grouping=RG), Argument, FIT),  # type: ignore[call-overload]
    (lambda: VariableSettings(mode=AllReplicas), Argument, rf"{FIT} \(mode=VariableRetrievalMode\)"),  # type: ignore[call-overload]
    (lambda: VariableSettings(2, 3).group_count(8), Replica, "groups do not tile"),
    (lambda: VariableSettings(CommGroup(Consecutive, 3)).group_count(8), Replica, DIVIDE),
    (lambda: VariableSettings(CommGroup(Orthogonal, 3)).returned_count(8), Replica, DIVIDE),
    (
        lambda: VariableSettings(RG).group_count(4),
        Replica,
        "another replica count, got 4 replicas, expected 8",
    ),
    (lambda: VariableSettings(RG.transpose()).stride(8), errors.UnsupportedError, "no constant stride"),
    (lambda: VariableSettings(RG).representative(8, 4), Replica, "there is no such group"),
    (lambda: VariableSettings().group_count("8"), Argument, "replicas is not an int"),  # type: ignore[arg-type]
    (lambda: VariableSettings().shape_on_host(3, 8), Argument, "shape is not a sequence"),  # type: ignore[arg-type]
    (
        lambda: VariableSettings(2, 2).shape_on_replica((2, 2), 8, "w"),
        errors.ShapeError,
        r"of 'w', got shape \[2, 2\]",
    ),
    (
        lambda: VariableSettings(2, 2).shape_on_replica((), 8),
        errors.ShapeError,
        r"groups, got shape \[\], exp",
    ),
    (lambda: VariableSettings(2, 2).getSharedVariableDomain(), Replica, "the settings have no CommGroup"),
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
