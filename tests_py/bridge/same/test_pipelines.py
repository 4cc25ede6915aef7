"""Pipelines of PyTorch beside one device: names of states, tied weights, data of stages, results in parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn.functional import cross_entropy, mse_loss

import popsr
from popsr import errors
from popsr.bridge.torch import trace_step
from tests_py.bridge.same.planted.torch_layers import CopyTo, SumFrom, momentum

WIDTH, PARTS = 4, 2
X, Y = (torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(i)) for i in (1, 2))


def whole(seed: int = 3) -> Any:
    """Norms are ones and zeros, which initial values do not tell apart."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
    )


def own() -> dict[int, Any]:
    """Layers of this rank by their numbers; all on the only rank."""
    count = 4 // dist.get_world_size()
    first = dist.get_rank() * count
    return dict(enumerate([*whole()][first : first + count], first))


def from_zero() -> Any:
    return nn.Sequential(*own().values())


def named() -> Any:
    return nn.ModuleDict({"net": nn.ModuleDict({f"layer{i}": layer for i, layer in own().items()})})


def by_number() -> Any:
    return nn.ModuleDict({str(i): layer for i, layer in own().items()})


def run(model: Any, h: Any) -> Any:
    for layer in (layer for layer in model.modules() if isinstance(layer, nn.LayerNorm | nn.Linear)):
        h = layer(h)
    return h


def pipeline(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    """Two stages; the only rank sends nothing."""
    optimizer.zero_grad()
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    total: Any = torch.zeros(())
    for a, b in zip(x.chunk(PARTS), y.chunk(PARTS), strict=True):
        h = a
        if rank:
            h = torch.empty_like(a)
            dist.recv(h, 0)
            h.requires_grad_()
        out = run(model, h)
        if rank < last:
            dist.send(out.detach(), 1)
            gradient = torch.empty_like(out)
            dist.recv(gradient, 1)
            out.backward(gradient)
        else:
            loss = mse_loss(out, b) / PARTS
            loss.backward()
            total += loss.detach()
        if rank:
            dist.send(h.grad, 0)
    optimizer.step()
    return total if rank == last else None


def alone(model: Any, optimizer: Any, inputs: Any, targets: Any) -> Any:
    optimizer.zero_grad()
    loss = mse_loss(run(model, inputs), targets)
    loss.backward()
    optimizer.step()
    return loss


def read(model: Any, step: Any = alone, batch: Any = (X, Y)) -> Any:
    return trace_step(step, model, momentum(model), *batch, replicas=1)


def beside(make: Any, like: Any, step: Any = pipeline, batch: Any = (X, Y), **options: Any) -> Any:
    return popsr.prove(step, make, momentum, *batch, **{"replicas": 2, "like": like, **options})


NAMES: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "the same": (by_number, {}),
    "longer": (named, {}),
    "numbered from 0": (from_zero, {"groups": {"[0-9].*": [[0], [1]]}}),
}


@pytest.mark.parametrize("name", NAMES)
def test_names_of_states(name: str) -> None:
    """States are found by name, by initial values, or, as norms, beside their neighbours."""
    make, options = NAMES[name]
    proof = beside(make, read(whole()), **options)
    assert proof.ok, proof.problems
    assert proof.same.headline == "same training as the reference"


def test_states_that_are_found_nowhere() -> None:
    """A reference with other initial values needs names."""
    other = read(whole(4))
    with pytest.raises(errors.UnknownNameError) as caught:
        beside(named, other)
    text = "like has no state of that path, got 'net.layer0.weight' and 7 more, expected '0.weight', or cuts="
    assert text + "{'net.layer0.weight': its path there}" in str(caught.value)
    kinds = ("weight", "bias")
    cuts = {f"net.layer{i}.{kind}": f"{i}.{kind}" for i in range(4) for kind in kinds}
    assert beside(named, other, cuts=cuts).ok
    with pytest.raises(errors.UnknownNameError, match=r"got '9\.weight'"):
        beside(named, other, cuts={**cuts, "net.layer1.weight": "9.weight"})


@pytest.mark.parametrize("exact", [True, False])
def test_one_device(exact: bool) -> None:
    """The step works with one rank: data that one stage reads are not those of another one."""

    def batch(rank: int) -> Any:
        ranks = dist.get_world_size()
        return (X, Y) if ranks == 1 else (X if rank == 0 else X - 1, Y if rank else Y + 1)

    proof = beside(by_number, "one device", batch=(batch,), exact=exact)
    assert proof.ok, proof.problems
    [result] = [each for each in proof.same.values if each.role == "result"]
    assert not result.reason


def test_a_step_that_needs_its_ranks() -> None:
    def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        if dist.get_rank() == 0:
            dist.send(x, 1)
        else:
            dist.recv(x, 0)

    same = beside(by_number, "one device", step).same
    assert same.verdict == "unknown"
    assert "the step cannot be read on one device" in same.problems[0]
    assert "like= takes a step for one device" in same.problems[0]


def gradient_of(t: Any) -> Any:
    return t.grad


class Tied(nn.Module):
    """A table that the last stage calls by another name."""

    def __init__(self) -> None:
        super().__init__()
        table = nn.Parameter(torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(5)))
        setattr(self, "head" if dist.get_rank() else "table", table)


@pytest.mark.parametrize("summed", [True, False])
def test_tied_weights_of_two_names(summed: bool) -> None:
    """Both are one state of the reference, so that their drift is found."""

    def step(model: Any, optimizer: Any, x: Any, y: Any) -> None:
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            out = torch.tanh(model.table[x])
            dist.send(out.detach(), 1)
            gradient = torch.empty_like(out)
            dist.recv(gradient, 1)
            out.backward(gradient)
        else:
            h = torch.empty(len(x), WIDTH)
            dist.recv(h, 0)
            h.requires_grad_()
            cross_entropy(h @ model.head.T, y).backward()
            dist.send(gradient_of(h), 0)
        for p in model.parameters() if summed else ():
            dist.all_reduce(p.grad)
        optimizer.step()

    def reference(model: Any, optimizer: Any, x: Any, y: Any) -> None:
        optimizer.zero_grad()
        cross_entropy(torch.tanh(model.table[x]) @ model.table.T, y).backward()
        optimizer.step()

    tokens = (torch.tensor([0, 3, 2, 4]), torch.tensor([1, 0, 2, 4]))
    proof = beside(Tied, reference, step, tokens)
    assert not proof.drifting
    both = {"table", "head", "optimizer.table.momentum_buffer", "optimizer.head.momentum_buffer"}
    assert {each.path for each in proof.same.differing} == (set() if summed else both)
    assert proof.ok is summed


class Transposed(nn.Module):
    """Layers whose weights stand otherwise than in the reference."""

    def __init__(self) -> None:
        super().__init__()
        rank, ranks = dist.get_rank(), dist.get_world_size()
        up, down = (each.weight.detach() for each in whole() if isinstance(each, nn.Linear))
        self.up = nn.Parameter(up.T.chunk(ranks, 1)[rank].clone())
        self.down = nn.Parameter(down.T.chunk(ranks, 0)[rank].clone())

    def forward(self, x: Any) -> Any:
        return SumFrom.apply(torch.tanh(CopyTo.apply(x, None) @ self.up) @ self.down, None)


def test_parts_of_states_of_other_names() -> None:
    def step(model: Any, optimizer: Any, x: Any, y: Any) -> None:
        optimizer.zero_grad()
        mse_loss(model(x), y).backward()
        optimizer.step()

    layers = [nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2)]
    for layer, given in zip(layers, (each for each in whole() if isinstance(each, nn.Linear)), strict=True):
        layer.weight = given.weight
    like = read(nn.Sequential(layers[0], nn.Tanh(), layers[1]), step)
    same = beside(Transposed, like, step, equal=["x", "y"]).same
    assert same.ok, same.problems


# Results in parts


class Columns(nn.Module):
    """A layer that two ranks have columns of, whose results stay in parts."""

    def __init__(self) -> None:
        super().__init__()
        ranks = min(dist.get_world_size(), 2)
        table = torch.randn(6, WIDTH, generator=torch.Generator().manual_seed(8))
        self.weight = nn.Parameter(table.chunk(ranks)[dist.get_rank() % ranks].clone())


def columns(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    ranks = dist.get_world_size()
    optimizer.zero_grad()
    out = x @ model.weight.T
    ((out**2).sum() / (len(x) * max(ranks // 2, 1))).backward()
    groups = [[0, 2], [1, 3]] if ranks == 4 else [[0]]
    dist.all_reduce(model.weight.grad, group=dist.new_subgroups_by_enumeration(groups)[0])
    optimizer.step()
    return out


PAIRS: dict[str, Any] = {each: [[0, 1], [2, 3]] for each in ("x", "y")}
RESULTS: dict[str, tuple[Any, str]] = {
    "their places": (lambda t, r: t.chunk(2)[r // 2].chunk(2, 1)[r % 2], "same"),
    "other places": (lambda t, r: t.chunk(2)[r % 2].chunk(2, 1)[r // 2], "differs"),
    "nothing": (None, "unknown"),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_in_parts(name: str) -> None:
    cut, verdict = RESULTS[name]
    cuts = None if cut is None else {"result": cut}
    batch = (X[:4], Y[:4])
    same = beside(Columns, "one device", columns, batch, replicas=4, groups=PAIRS, cuts=cuts).same
    [result] = [each for each in same.values if each.role == "result"]
    assert result.verdict == verdict
    assert all(each.verdict == "same" for each in same.values if each.role == "state")
    if verdict == "unknown":
        assert result.reason == (
            "result is [4, 3] where one device returns [8, 6]: cuts={'result': a dimension, or a function of the "
            "whole and the replica}"
        )


def test_parts_that_leave_something_out() -> None:
    cuts = {"result": lambda t, r: t[:4].chunk(2, 1)[r % 2]}
    with pytest.raises(errors.AttributeValueError, match="cuts of 'result' leave something out"):
        beside(Columns, "one device", columns, (X[:4], Y[:4]), replicas=4, groups=PAIRS, cuts=cuts)


def test_a_schedule_on_one_device() -> None:
    """The only rank has one stage; torch's own schedule runs there, too."""

    def make() -> Any:
        model: Any = by_number()
        like = torch.zeros(8 // PARTS, WIDTH, requires_grad=True)
        stage = PipelineStage(
            nn.Sequential(*model.values()), dist.get_rank(), dist.get_world_size(), torch.device("cpu"),
            input_args=like, output_args=like,
        )  # fmt: skip
        model.schedule = ScheduleGPipe(stage, PARTS, loss_fn=mse_loss)
        return model

    def step(model: Any, optimizer: Any, x: Any, y: Any) -> None:
        optimizer.zero_grad()
        given = (x,) if dist.get_rank() == 0 else ()
        targets = {"target": y} if dist.get_rank() == dist.get_world_size() - 1 else {}
        model.schedule.step(*given, **targets)
        optimizer.step()

    assert beside(make, "one device", step).ok
