"""Gradients in steps of PyTorch: sums that are missing, and multiples that do not fit the others'."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")
import torch
import torch.distributed as dist
from torch import nn

import popsr
from popsr.bridge import Proof

WORLD = 4
X, Y = torch.ones(3, 4), torch.ones(3, 2)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.tanh(self.a(x)))  # type: ignore[no-any-return]


def proved(reduce: Callable[[str, torch.Tensor], None], optimiser: Any = torch.optim.SGD) -> Proof:
    def step(model: Any, opt: Any, x: Any, y: Any) -> Any:
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        for name, p in model.named_parameters():
            reduce(name, p.grad)
        opt.step()
        opt.zero_grad()
        return loss

    model = Network()
    return popsr.prove(step, model, optimiser(model.parameters(), lr=0.1), X, Y, replicas=WORLD)


def mean(_: str, g: torch.Tensor) -> None:
    dist.all_reduce(g)
    g /= WORLD


def mean_but_of(skipped: str) -> Callable[[str, torch.Tensor], None]:
    return lambda name, g: None if name == skipped else mean(name, g)


def sum_of_one(name: str, g: torch.Tensor) -> None:
    dist.all_reduce(g)
    if name != "a.bias":
        g /= WORLD


def test_a_gradient_without_its_sum_is_pending() -> None:
    proof = proved(mean_but_of("a.weight"))
    [value] = proof.drifting
    assert value.path == "a.weight"
    assert value.pending is not None
    assert (value.pending.shape, str(value.pending.groups), value.pending.nonlinear) == (
        (8, 4),
        "{0,1,2,3}",
        "",
    )
    assert value.pending.made.startswith(__file__)
    [lint] = proof.pending
    assert lint.code == "L11"
    assert lint.text.startswith(
        "'a.weight' depends on a part of a sum: each replica has a part of its gradient"
    )
    assert len(proof.problems) == 1  # once, with the drift


def test_functions_of_a_gradient_that_are_not_linear_are_named() -> None:
    proof = proved(mean_but_of("a.weight"), torch.optim.Adam)
    linear = {each.path: each.pending is not None and not each.pending.nonlinear for each in proof.drifting}
    moments = "optimizer.a.weight.exp_avg"
    assert linear == {"a.weight": False, moments: True, f"{moments}_sq": False}


def test_one_sum_among_means() -> None:
    proof = proved(sum_of_one)
    assert not proof.drifting
    [lint] = proof.pending
    assert lint.code == "L11"
    assert lint.location.startswith(__file__)


@pytest.mark.parametrize("optimiser", [torch.optim.SGD, torch.optim.AdamW])
def test_right_steps_have_no_pending_gradient(optimiser: Any) -> None:
    assert proved(mean, optimiser).ok
    assert proved(lambda _, g: dist.all_reduce(g), optimiser).ok
