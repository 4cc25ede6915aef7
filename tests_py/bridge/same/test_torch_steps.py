"""Steps of PyTorch beside one device: wrappers, shards cut by hand, references, and what cannot be compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as fc
from torch import nn

import popsr
from popsr import errors
from popsr.bridge.torch import trace_step
from popsr.testing import assert_in_step, assert_same_training
from tests_py.bridge.same.planted.cases import matching
from tests_py.bridge.same.planted.torch_layers import alone, momentum
from tests_py.bridge.same.torch_steps import (
    BATCH,
    SHARED,
    STEPS,
    TOKENS,
    Case,
    Split,
    adamw,
    mean,
    of_split,
    plain,
    sharded,
    training,
)


def beside(case: Case, **options: Any) -> Any:
    """The comparison of a step with one device."""
    given = {"replicas": 2, "like": "one device", **case.options, **options}
    return popsr.prove(case.step, case.model, case.optimizer, *case.batch, **given).same


def check(case: Case, **options: Any) -> None:
    same = beside(case, **options)
    paths = [each.path for each in same.values]
    assert {each.path for each in same.differing} == (matching(case.wrong, paths) if case.wrong else set())
    assert not same.unknown, same.problems


FAST = (
    "sum of gradients", "DistributedDataParallel", "fully_shard, clipped", "parallelize_module", "cut by hand",
)  # fmt: skip


@pytest.mark.share(3)
@pytest.mark.parametrize("name", FAST)
def test_steps(name: str) -> None:
    check(STEPS[name])


def test_parts_of_a_value_that_begins_equal_on_all_ranks() -> None:
    """The bias is zeros, and so is declared equal, but each rank has its own part of it: by float64 it differed."""
    check(STEPS["cut by hand"], exact=False)


@pytest.mark.slow
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("name", STEPS)
def test_all_steps(name: str, exact: bool) -> None:
    check(STEPS[name], exact=exact)


def test_results_that_are_parts_of_a_mean() -> None:
    """Each rank returns its own loss; a loss that all ranks share does not count as part of a mean."""
    [result] = [each for each in beside(STEPS["momentum"]).values if each.role == "result"]
    assert (result.verdict, result.reason) == ("same", "as the mean over replicas")

    def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        loss = training(mean)(model, optimizer, x, y).detach()
        dist.broadcast(loss, 0)
        return loss

    assert [each.path for each in beside(Case(step, optimizer=momentum)).differing] == ["result"]


def test_what_is_listed() -> None:
    notes = beside(STEPS["dropout"]).notes
    assert any(
        note.startswith("random numbers are off beside one device: masks of dropout") for note in notes
    )
    assert any("'optimizer.*.weight.step'" in note for note in notes)


@pytest.mark.parametrize("is_one_sided", [False, True])
def test_sides_of_comparisons(is_one_sided: bool) -> None:
    """A ReLU that is zero has decided what its gradient asks: is it above zero? Nothing makes it less than zero."""

    def loss(out: Any, y: Any) -> Any:
        out = out.relu()
        return torch.nn.functional.mse_loss(torch.where(out >= 0, out, y) if is_one_sided else out, y)

    notes = beside(Case(alone(loss, mean))).notes
    assert any("one side only of comparisons was drawn" in note for note in notes) is is_one_sided


def test_labels_that_are_the_same_on_all_ranks() -> None:
    labels = torch.tensor([0, 1, -1])
    case = Case(STEPS["labels that count"].step, batch=(BATCH[0], labels))
    same = beside(case)
    assert same.ok
    assert "'y': the same on all replicas, where one device has all parts: give different ones" in same.notes


def unseeded() -> Split:
    return Split(seeded=False)


def test_parts_that_are_not_found() -> None:
    """Each rank draws its own: the state is asked for by name, and a place that the user says is taken."""
    case = Case(of_split, unseeded, adamw, "", TOKENS, SHARED)
    same = beside(case)
    assert same.verdict == "unknown"
    assert (
        "it is not known which parts of state 'qkv.weight' replicas have, [12, 8] of [24, 8]"
        in same.problems[0]
    )

    def heads(whole: Any, rank: int) -> Any:
        return whole.unflatten(0, (3, 4, 2)).chunk(2, 1)[rank].flatten(0, 2)

    check(case, cuts={"qkv.*": heads})
    wrong = beside(case, cuts={"qkv.*": lambda whole, rank: whole.chunk(2)[rank]})
    assert wrong.verdict == "differs"


BAD_CUTS = {
    "nothing of that path": ({"qvk.*": 0}, errors.UnknownNameError, "cuts of nothing, got 'qvk.*'"),
    "no place": ({"x": 1.5}, errors.ArgumentTypeError, "cuts of 'x' say no place, got 1.5"),
    "no mapping": (3, errors.ArgumentTypeError, "cuts is not a mapping, got 3"),
    "another dimension": ({"qkv.weight": 1}, errors.AttributeValueError, "cuts of 'qkv.weight' do not fit"),
    "a part twice": (
        {"qkv.weight": lambda whole, _: whole[:12]},
        errors.AttributeValueError,
        "cuts of 'qkv.weight' leave something out",
    ),
    "another shape": (
        {"qkv.weight": lambda whole, _: whole},
        errors.ShapeError,
        "another shape on replica 0, got [24, 8], expected [12, 8]",
    ),
    "computed": (
        {"qkv.weight": lambda whole, rank: whole.chunk(2)[rank] * 0.5},
        errors.ArgumentTypeError,
        "a function that computes",
    ),
}


@pytest.mark.share(4)
@pytest.mark.parametrize("name", BAD_CUTS)
def test_bad_cuts(name: str) -> None:
    cuts, kind, text = BAD_CUTS[name]
    with pytest.raises(kind) as caught:
        beside(Case(of_split, Split, momentum, "", TOKENS, SHARED), cuts=cuts)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_reference() -> None:
    def alone(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        return training()(model, optimizer, x, y)

    def doubled(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        return training(factor=2.0)(model, optimizer, x, y)

    case = Case(training(mean), optimizer=momentum)
    assert beside(case, like=alone).ok
    assert beside(case, like=doubled).verdict == "differs"
    whole = [torch.cat([t, t]) for t in BATCH]
    model = plain()
    assert beside(case, like=trace_step(alone, model, momentum(model), *whole, replicas=1)).ok


def test_assertions() -> None:
    model = plain()
    options: dict[str, Any] = {"replicas": 2}
    assert_same_training(training(mean), model, momentum(model), *BATCH, **options)
    with pytest.raises(errors.OutOfStepError, match="differ from the reference"):
        assert_same_training(training(mean, 2.0), model, momentum(model), *BATCH, like=training(), **options)
    with pytest.raises(errors.OutOfStepError):
        assert_in_step(STEPS["sum of gradients"].step, plain, adamw, *BATCH, like="one device", **options)


def test_one_replica() -> None:
    with pytest.raises(errors.ReplicaError, match="of a step on one replica"):
        beside(Case(training(mean)), replicas=1)


def test_numbers_of_each_rank() -> None:
    def step(model: Any, optimizer: Any, x: Any, y: Any, scale: Any) -> Any:
        return training(mean)(model, optimizer, x * scale, y)

    case = Case(step, optimizer=momentum, batch=(*BATCH, torch.tensor(2.0)))
    assert "'scale' is one number on each rank, got 2 of them" in beside(case).problems[0]
    check(case, equal=["scale"])


def test_a_size_that_stays() -> None:
    """A number of the program does not follow the mesh: the step differs from itself, not from its reference."""

    def step(model: Any, optimizer: Any, x: Any, y: Any) -> None:
        def divided(model: Any) -> None:
            for p in model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= 2

        training(divided)(model, optimizer, x, y)

    case = Case(step, optimizer=momentum)
    assert beside(case).verdict == "differs"
    assert beside(case, like=training()).verdict != "differs"


def test_models_that_stand_for_one_rank() -> None:
    """A wrapped model that is given as an object, and a job of the user."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        for model, after, text in (
            (sharded(), lambda model: None, "expected a function that makes it"),
            (plain(), mean, "in a job that runs"),
        ):
            with pytest.raises(errors.UnsupportedError, match=text):
                beside(Case(training(after), model, momentum(model), "", BATCH))
    finally:
        dist.destroy_process_group()


def test_tied_weights() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.up, self.down = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
            self.down.weight = self.up.weight

        def forward(self, x: Any) -> Any:
            return self.down(torch.tanh(self.up(x)))

    same = beside(Case(training(mean), Tied, momentum, "", (BATCH[0], BATCH[0])))
    assert same.ok
    assert [each.path for each in same.values if each.role == "state"] == [
        "up.weight",
        "optimizer.up.weight.momentum_buffer",
    ]


def test_places_by_value() -> None:
    """Blocks, lines in any order, padding, axes in another order and single elements are found; constants are not."""
    from popsr.bridge._same._by_value import places_by_value
    from popsr.bridge._same._parts import part_of

    whole = np.random.default_rng(0).normal(size=(6, 4))
    padded = np.concatenate([whole, np.zeros((2, 4))])
    cases: dict[str, list[Any]] = {
        "blocks": [whole[:3], whole[3:]],
        "a grid": [whole[:3, :2], whole[:3, 2:], whole[3:, :2], whole[3:, 2:]],
        "lines": [whole[::2], whole[1::2]],
        "columns": [whole[:, [0, 3]], whole[:, [2, 1]]],
        "padding": [padded[:4], padded[4:]],
        "transposed": [whole.T[:2], whole.T[2:]],
        "flat": [whole.reshape(-1)[:12], whole.reshape(-1)[12:]],
        "a grid of lines": [whole[::2, ::2], whole[::2, 1::2], whole[1::2, ::2], whole[1::2, 1::2]],
    }
    for name, parts in cases.items():
        rows = [np.ascontiguousarray(part) for part in parts]
        found = places_by_value(rows, whole)
        assert found is not None, name
        for place, row in zip(found, rows, strict=True):
            assert np.array_equal(part_of(whole, place), row), name
    assert places_by_value([np.ones(2), np.ones(2)], np.ones(4)) is None
    assert places_by_value([whole[:3] + 1, whole[3:]], whole) is None


def test_groups_of_ranks_without_names_of_axes() -> None:
    """The line is named where ranks lie along two axes that only groups of states and data tell."""

    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            parts = 1 if dist.get_world_size() == 1 else 2
            self.group = dist.new_subgroups_by_enumeration([[0, 1], [2, 3]] if parts == 2 else [[0]])[0]
            rank = dist.get_rank() % parts
            self.up = nn.Parameter(torch.randn(4, 6).chunk(parts, 1)[rank].clone())
            self.down = nn.Parameter(torch.randn(6, 2).chunk(parts, 0)[rank].clone())

        def forward(self, x: Any) -> Any:
            hidden = torch.tanh(x @ self.up / self.up.shape[1])  # the size of a part
            return fc.all_reduce(hidden @ self.down, "sum", self.group)

    def step(model: Any, optimizer: Any, x: Any, y: Any) -> None:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        groups = [[0, 2], [1, 3]] if dist.get_world_size() == 4 else [[0]]
        copies = dist.new_subgroups_by_enumeration(groups)
        for p in model.parameters():
            p.grad = fc.all_reduce(p.grad, "avg", copies[0])
        optimizer.step()

    parts = {"up": [[0, 2], [1, 3]], "down": [[0, 2], [1, 3]], "x": [[0, 1], [2, 3]], "y": [[0, 1], [2, 3]]}
    same = popsr.prove(step, Halves, momentum, *BATCH, replicas=4, groups=parts, like="one device").same
    assert same is not None
    assert same.place is not None
    assert "the size of a part" in same.place.source


def test_the_change_of_a_clipped_step() -> None:
    """Sums for means pass through a norm, and each rank returns its own part of the loss."""

    def summed(model: Any) -> None:
        for p in model.parameters():
            dist.all_reduce(p.grad)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    same = beside(Case(training(summed), optimizer=adamw))
    assert "a mean for the sum over {0,1} at test_torch_steps.py" in str(same.repair)
    assert same.place.source == "dist.all_reduce(p.grad)"
