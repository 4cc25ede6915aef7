"""Explanations, lints and reports of steps of PyTorch call values by paths, variables and modules."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import popsr.bridge.torch as bridge
from popsr.bridge import Proof

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from tests_py.bridge.words.library import check_told  # noqa: E402


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 8, bias=False), nn.Linear(8, 4, bias=False)

    def forward(self, x: Any) -> Any:
        hidden = torch.relu(self.up(x))
        return self.down(hidden)


class Block(nn.Module):
    seen: Any

    def __init__(self) -> None:
        super().__init__()
        self.mlp = Mlp()
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: Any) -> Any:
        x = x + self.mlp(x)
        with torch.no_grad():
            self.seen.mul_(0.9)
            self.seen += 0.1 * x.mean(0)
        return x


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


def traced(
    step: Callable[..., Any], make: Callable[[], Any] = Net, optimizer: Any = torch.optim.SGD
) -> Proof:
    made = bridge.trace_step(
        step, make, lambda m: optimizer(m.parameters(), 0.1), torch.ones(2, 4), replicas=2
    )
    return made.prove()


def forgotten() -> Proof:
    """The gradient of one layer is not averaged."""

    def step(model: Any, optimizer: Any, x: Any) -> None:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        for name, p in model.named_parameters():
            if name != "blocks.1.mlp.down.weight":
                dist.all_reduce(p.grad, dist.ReduceOp.AVG)
        optimizer.step()

    return traced(step, optimizer=torch.optim.AdamW)


def noisy() -> Proof:
    """Noise of each rank, and a rate by rank."""

    def step(model: Any, optimizer: Any, x: Any) -> None:
        rate = 1.0 + dist.get_rank()
        with torch.no_grad():
            for p in model.parameters():
                noise = torch.randn_like(p)
                p += noise * rate

    return traced(step)


def train(model: Any, optimizer: Any, x: Any) -> None:
    optimizer.zero_grad()
    (model(x) ** 2).mean().backward()
    optimizer.step()


def replicated() -> Proof:
    """Statistics of each rank, which nobody broadcasts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return traced(train, lambda: DistributedDataParallel(Net(), broadcast_buffers=False))


def sharded() -> Proof:
    """A model under fully_shard, with statistics of each rank that nobody averages."""

    def make() -> Any:
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("shard",))
        model = Net()
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    return traced(train, make)


TABLE: list[tuple[Callable[[], Proof], str, list[str]]] = [
    (
        forgotten,
        "blocks.1.mlp.down.weight",
        [
            "'blocks.1.mlp.down.weight' takes its new value",
            "sub(matmul at HERE in the backward pass of 'blocks.1.mlp.down', "
            "'optimizer.blocks.1.mlp.down.weight.exp_avg')",
            "relu(matmul for 'hidden' at HERE in 'blocks.1.mlp.up') for 'hidden' in 'blocks.1.mlp'",
            "'x' is given to the step",
            "root: stream 'x' gives each replica data of its own",
            "suggestion: take the mean or the sum over {0,1} of the new 'blocks.1.mlp.down.weight' before HERE",
        ],
    ),
    (
        noisy,
        "blocks.0.mlp.up.weight",
        [
            "'blocks.0.mlp.up.weight' takes its new value",
            "mul(random_normal for 'noise' at HERE, cast of 'value of each rank at HERE') for 'p'",
            "root: 'value of each rank at HERE' is declared equal nowhere",
        ],
    ),
    (
        replicated,
        "module.blocks.1.seen",
        [
            "the new 'module.blocks.1.seen' = add(mul at HERE in 'module.blocks.1', mul)",
            "mul(mean, 0.1) for 'self.seen' in 'module.blocks.1'",
            "'x' is given to the step",
        ],
    ),
    (
        sharded,
        "blocks.0.seen",
        [
            "mean(add for 'x' at HERE in 'blocks.0') for 'self.seen' in 'blocks.0'",
            "suggestion: take the mean or the sum over shard of the new 'blocks.0.seen' before HERE",
        ],
    ),
]


@pytest.mark.parametrize(("make", "path", "lines"), TABLE)
def test_a_difference_is_told_in_names_of_the_user(
    make: Callable[[], Proof], path: str, lines: list[str], tmp_path: Any
) -> None:
    check_told(make(), path, lines, __file__, tmp_path)
