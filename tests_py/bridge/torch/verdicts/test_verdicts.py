"""Verdicts of steps of PyTorch whose replicas stay in step: collectives of equal values that are right, and wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import popsr

X = torch.ones(4, 3)
AVG, MAX = dist.ReduceOp.AVG, dist.ReduceOp.MAX


class Net(nn.Module):
    table: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 4)
        self.register_buffer("table", torch.arange(4.0))

    def forward(self, x: Any) -> Any:
        return self.layer(x) * self.table


Between = Callable[[Any, Any, Any], Any]  # of the model, the loss and the data, before the optimiser's step


def nothing(model: Any, loss: Any, x: Any) -> None:
    pass


def divided_buffers(model: Any, loss: Any, x: Any) -> None:
    for buffer in model.buffers():
        dist.all_reduce(buffer)
        buffer /= dist.get_world_size()


def averaged_buffers(model: Any, loss: Any, x: Any) -> None:
    for buffer in model.buffers():
        dist.all_reduce(buffer, AVG)


def sent_buffers(model: Any, loss: Any, x: Any) -> None:
    for buffer in model.buffers():
        dist.broadcast(buffer, 0)


def summed_buffers(model: Any, loss: Any, x: Any) -> None:
    for buffer in model.buffers():
        dist.all_reduce(buffer)


def averaged_gradients(model: Any, loss: Any, x: Any) -> None:
    for p in model.parameters():
        dist.all_reduce(p.grad, AVG)


def summed_gradients(model: Any, loss: Any, x: Any) -> None:
    for p in model.parameters():
        dist.all_reduce(p.grad)


def infinities(model: Any, loss: Any, x: Any) -> None:
    """A scaler's check, by hand."""
    found = torch.stack([(~torch.isfinite(p.grad)).any() for p in model.parameters()]).any().float()
    dist.all_reduce(found, MAX)
    for p in model.parameters():
        p.grad = torch.where(found > 0, torch.zeros_like(p.grad), p.grad)


def rows(model: Any, loss: Any, x: Any) -> None:
    """The number of rows of the whole batch."""
    count = torch.tensor(float(len(x)))
    dist.all_reduce(count)
    for p in model.parameters():
        p.grad *= 16 / count


def metric(model: Any, loss: Any, x: Any) -> Any:
    mean = loss.detach().clone()
    dist.all_reduce(mean, AVG)
    dist.all_reduce(mean, AVG)
    return mean


def gathered_metric(model: Any, loss: Any, x: Any) -> Any:
    mean = loss.detach().reshape(1).clone()
    dist.all_reduce(mean, AVG)
    found = [torch.zeros(1) for _ in range(4)]
    dist.all_gather(found, mean)
    return torch.cat(found)


def summed_metric(model: Any, loss: Any, x: Any) -> Any:
    mean = loss.detach().clone()
    dist.all_reduce(mean, AVG)
    dist.all_reduce(mean)
    return mean


def clip(model: Any, loss: Any, x: Any) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def averaged_norm(model: Any, loss: Any, x: Any) -> None:
    norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])
    dist.all_reduce(norm, AVG)
    for p in model.parameters():
        p.grad *= torch.clamp(1 / norm, max=1.0)


RIGHT: list[Between] = [
    *(nothing, divided_buffers, averaged_buffers, sent_buffers, infinities, rows),
    *(metric, gathered_metric, clip, averaged_norm),
]
WRONG: list[Between] = [summed_buffers, averaged_gradients, summed_gradients, summed_metric]


@pytest.mark.share(6)
@pytest.mark.parametrize("between", [*RIGHT, *WRONG], ids=lambda f: f.__name__)
def test_collectives_beside_those_of_a_wrapper(between: Between) -> None:
    """The wrapper averages gradients, so that what is made of them is equal."""

    def step(model: Any, optimizer: Any, x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        found = between(model, loss, x)
        optimizer.step()
        return found

    proof = popsr.prove(
        step,
        lambda: DistributedDataParallel(Net()),
        lambda model: torch.optim.AdamW(model.parameters()),
        X,
        replicas=4,
    )
    assert proof.verdict == ("ok" if between in RIGHT else "suspicious"), str(proof)
    assert {lint.code for lint in proof.suspicious} == (set() if proof.ok else {"L6"})


def test_a_step_that_writes_nothing_says_so() -> None:
    proof = popsr.prove(lambda model, x: model(x), Net, None, X, replicas=4)
    assert repr(proof) == "Proof[no state is written: 3 states on 4 replicas, none drifts]"
    assert proof.ok
