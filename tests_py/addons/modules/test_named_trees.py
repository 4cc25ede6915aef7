"""Trees of tensors, arrays and groupings, and groupings inside a domain of links."""

from __future__ import annotations

import numpy as np
import pytest

import popsr
from popsr import errors
from popsr.addons.named_replica_grouping import (
    NamedReplicaGrouping,
    fill_none_group,
    get_ild_replica_grouping,
    get_ild_size_from_popdist,
    get_instance_replica_grouping,
    is_cross_ild,
    is_cross_instance,
)
from popsr.addons.named_tensors import NamedTensorData, NamedTensors, print_named_tensors

Value, Key = errors.AttributeValueError, errors.UnknownNameError

# Tensors and arrays


def test_tensors_are_sorted_by_their_names() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        names = ("w", "fc1.bias", "fc1.weight", "accum.fc1.bias")
        found = NamedTensors.from_dict(
            {f"k{i}.t": popsr.variable(np.float32(i), name=name) for i, name in enumerate(names)}
        )
    assert [t.name for t in found.tensors] == ["accum.fc1.bias", "fc1.bias", "fc1.weight", "w"]
    assert list(found.named_tensors) == ["k0.t", "k1.t", "k2.t", "k3.t"]
    assert type(found.named_tensors) is dict
    swapped = dict(zip(found.values_flat(), reversed(found.values_flat()), strict=True))
    assert found.remap(swapped)["k0.t"] is found["k3.t"]
    assert type(found.remap(swapped)) is NamedTensors
    del swapped[found["k2.t"]]
    with pytest.raises(Key, match=r"remap.*'k2\.t'"):
        found.remap(swapped)


def test_printed_tensors(capfd: pytest.CaptureFixture[str]) -> None:
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        found = NamedTensors.from_dict({"a.b": popsr.variable([1.0, 2.0]), "c": popsr.variable([3.0])})
        printed = print_named_tensors(found)
    assert printed.keys_flat() == ["a.b", "c"]
    assert [t.shape for t in printed.values_flat()] == [(2,), (1,)]
    with popsr.Session(ir) as session:
        session.run()
    text = capfd.readouterr()
    assert text.err.index("a.b") < text.err.index("c")


def test_arrays() -> None:
    assert NamedTensorData(a=np.ones(2)).a.sum() == 2


def test_text_of_groups() -> None:
    ir = popsr.Ir(4)
    groups = NamedReplicaGrouping.build_groups(["x.y"], ir.replica_grouping(group_size=2))
    assert str(groups) == (
        "NamedReplicaGrouping({\nx.y: ReplicaGrouping(num_replicas=4, stride=1, group_size=2, num_groups=2),\n})"
    )


# Groupings


def test_groups_by_name() -> None:
    ir = popsr.Ir(4)
    pairs, every = ir.replica_grouping(group_size=2), ir.replica_grouping()
    groups = NamedReplicaGrouping.build_groups(["a", "b.c"], pairs)
    assert groups.to_dict() == {"a": pairs, "b.c": pairs}
    assert type(groups) is NamedReplicaGrouping
    assert fill_none_group(None, pairs) is pairs
    assert fill_none_group(every, pairs) is every


ILD: dict[str, tuple[tuple[int, int], int, tuple[int, int] | None]] = {
    "fits": ((1, 2), 4, None),
    "fits with a stride": ((2, 2), 4, None),
    "all": ((1, 8), 4, (1, 4)),
    "halves of a stride": ((2, 4), 4, (2, 2)),
    "a domain apart": ((4, 2), 4, (1, 1)),
    "one domain": ((1, 8), 8, None),
    "larger domain": ((4, 2), 64, None),
}


@pytest.mark.parametrize("name", ILD)
def test_groupings_inside_a_domain(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (stride, size), domain, expected = ILD[name]
    monkeypatch.setenv("POPLAR_TARGET_OPTIONS", f'{{"ipuLinkDomainSize": "{domain}"}}')
    ir = popsr.Ir(8)
    with ir.main_graph:
        assert get_ild_size_from_popdist() == domain
        grouping = ir.replica_grouping(stride, size)
        inside = get_ild_replica_grouping(grouping)
        assert is_cross_ild(grouping) is (expected is not None)
        assert get_instance_replica_grouping(grouping) is grouping
        assert not is_cross_instance(grouping)
        assert get_instance_replica_grouping() == ir.replica_grouping()
        assert get_ild_replica_grouping() == ir.replica_grouping(group_size=min(domain, 8))
    if expected is None:
        assert inside is grouping
    else:
        assert inside == ir.replica_grouping(expected[0], expected[1])
    # Members of a group are members of the group that it was made of, in one domain.
    for group in inside.groups:
        assert len({replica // domain for replica in group}) == 1
        assert len({grouping.assignment[replica] for replica in group}) == 1


@pytest.mark.parametrize(("replicas", "size"), [(2, 2), (64, 64), (128, 64)])
def test_default_size_of_a_domain(replicas: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POPLAR_TARGET_OPTIONS", raising=False)
    with popsr.Ir(replicas).main_graph:
        assert get_ild_size_from_popdist() == size


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "4", '{"ipuLinkDomainSize": 0}', '{"ipuLinkDomainSize": null}']
)
def test_refused_sizes_of_a_domain(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPLAR_TARGET_OPTIONS", text)
    with popsr.Ir(2).main_graph, pytest.raises(Value, match=r"POPLAR_TARGET_OPTIONS.*ipuLinkDomainSize"):
        get_ild_size_from_popdist()


def test_strides_beyond_a_domain_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPLAR_TARGET_OPTIONS", '{"ipuLinkDomainSize": 2}')
    ir = popsr.Ir(8)
    with (
        ir.main_graph,
        pytest.raises(errors.ReplicaError, match=r"stride exceeds the domain.*got 4, expected at most 2"),
    ):
        get_ild_replica_grouping(ir.replica_grouping(4, 2))
