"""A mixture of experts with an expert on each rank: tokens travel by all_to_all, in parts of one size."""

from __future__ import annotations

from typing import Any

import pytest

import popsr.bridge.torch as bridge
from popsr.bridge import UnsupportedOpsError
from popsr.errors import UnsupportedError

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.distributed._functional_collectives as functional  # noqa: E402
import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402

from tests_py.bridge.torch import models  # noqa: E402
from tests_py.bridge.torch.traced.test_steps import compare, sgd  # noqa: E402
from tests_py.bridge.torch.training.architectures import classes, tokens_of  # noqa: E402

CAPACITY = 3


class Experts(nn.Module):
    """Each rank routes its tokens to the experts of all ranks, some of each; others are passed on as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.size = dist.get_world_size()
        self.tokens = models.seeded(nn.Embedding(11, 8))
        self.router, self.head = models.seeded(nn.Linear(8, self.size)), models.seeded(nn.Linear(8, 11))
        self.expert = nn.Linear(8, 8)
        with torch.no_grad():
            own = torch.randn(8, 8, generator=torch.Generator().manual_seed(dist.get_rank()))
            self.expert.weight.copy_(own / 3)
            self.expert.bias.zero_()

    def exchanged(self, parts: Any) -> Any:
        sizes = [CAPACITY] * self.size
        return functional.all_to_all_single_autograd(parts, sizes, sizes, models.world())

    def forward(self, tokens: Any) -> Any:
        x = self.tokens(tokens).flatten(0, 1)
        share, which = self.router(x).softmax(-1).max(-1)
        chosen = F.one_hot(which, self.size)
        order = (chosen.cumsum(0) * chosen).sum(-1) - 1  # place of a token among those of its expert
        kept = (order < CAPACITY)[:, None, None]
        slots = F.one_hot(order.clamp(max=CAPACITY - 1), CAPACITY)
        sent = (chosen[:, :, None] * slots[:, None, :] * kept).float()
        parts = torch.einsum("tec,tw->ecw", sent, x).reshape(-1, 8)
        made = self.exchanged(F.relu(self.expert(self.exchanged(parts)))).view(self.size, CAPACITY, 8)
        x = x + share[:, None] * torch.einsum("tec,ecw->tw", sent, made)
        return self.head(x).view(*tokens.shape, -1)


def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    optimizer.zero_grad()
    loss = classes(model(x), y)
    loss.backward()
    for name, p in model.named_parameters():
        if name.startswith("expert."):
            p.grad /= dist.get_world_size()
        else:
            dist.all_reduce(p.grad, dist.ReduceOp.AVG)
    optimizer.step()
    return loss


@pytest.mark.parametrize("world", [4, pytest.param(8, marks=pytest.mark.slow)], ids="{} replicas".format)
def test_experts_of_all_ranks(world: int) -> None:
    groups = {"expert.*": range(world)}
    proof = compare(step, Experts, sgd, tokens_of, world, groups=groups).prove()
    assert proof.ok, str(proof)
    everyone = "{" + ",".join(map(str, range(world))) + "}"
    assert str(proof.value("router.weight").proved) == everyone
    assert str(proof.value("expert.weight").declared) == "".join(f"{{{rank}}}" for rank in range(world))


def uneven(model: Any, x: Any) -> Any:
    return functional.all_to_all_single(model(x), [1, 3], [1, 3], models.world())


def of_data(model: Any, x: Any) -> Any:
    sizes = (model(x) > 0).sum(1).tolist()
    return functional.all_to_all_single(x, sizes, sizes, models.world())


def test_parts_of_different_sizes_are_refused() -> None:
    with pytest.raises(UnsupportedOpsError, match=r"all_to_all_single.default \(parts of different sizes\)"):
        bridge.trace_step(uneven, models.mlp(), None, torch.ones(4, 6), replicas=2)
    made = bridge.trace_step(
        uneven, models.mlp(), None, torch.ones(4, 6), replicas=2, equal=["x"], unsupported="conservative"
    )
    assert str(made.prove().facts.partition(made.results[0].tensor)) == "{0}{1}"


def test_parts_of_sizes_of_the_data_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"at .*test_experts.py:\d+"):
        bridge.trace_step(of_data, models.mlp(), None, torch.ones(2, 6), replicas=2)
