"""Steps of PyTorch as users write them: wrappers, shards cut by hand, optimisers; right ones, and wrong alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_reduce
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy, mse_loss
from torch.nn.parallel import DistributedDataParallel

from tests_py.bridge.same.planted.torch_layers import CopyTo, SumFrom, alone, momentum

__all__ = ["STEPS", "Case", "plain", "training"]


def plain(*, dropout: float = 0.0) -> Any:
    """A model whose initial values are the same on all ranks."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Dropout(dropout), nn.Linear(6, 2))


def adamw(model: Any) -> Any:
    return torch.optim.AdamW(model.parameters(), lr=0.1)


def training(after: Callable[[Any], object] = lambda model: None, factor: float = 1.0) -> Any:
    """A step that does something with gradients before the update."""
    return alone(lambda out, y: mse_loss(out, y) * factor, after)


def mean(model: Any) -> None:
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def added(model: Any) -> None:
    for p in model.parameters():
        group: Any = dist.group.WORLD
        p.grad = all_reduce(p.grad, "sum", group)


def clipped(model: Any) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)


def clipped_alone(model: Any) -> None:
    clipped(model)
    mean(model)


def mean_clipped(model: Any) -> None:
    mean(model)
    clipped(model)


def accumulating(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    optimizer.zero_grad()
    for a, b in zip(x.chunk(2), y.chunk(2), strict=True):
        (mse_loss(model(a), b) / 2).backward()
    mean(model)
    optimizer.step()


def counted(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    """Labels of -1 count for nothing."""
    optimizer.zero_grad()
    count = (y >= 0).sum().float()
    dist.all_reduce(count)
    loss = cross_entropy(model(x), y, ignore_index=-1, reduction="sum") / count
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
    optimizer.step()


def averaged(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    """Means of ranks with unequal numbers of labels."""
    optimizer.zero_grad()
    cross_entropy(model(x), y, ignore_index=-1).backward()
    mean(model)
    optimizer.step()


def own_labels(rank: int) -> tuple[Any, Any]:
    torch.manual_seed(rank)
    return torch.randn(3, 4), torch.tensor([[0, 1, -1], [1, -1, -1]])[rank % 2]


class Split(nn.Module):
    """Layers cut by hand: rows of q, k and v of a rank's heads, columns of the output, a vocabulary with padding."""

    def __init__(self, *, scale: bool = False, seeded: bool = True) -> None:
        """Cut what all ranks draw, or draw parts."""
        super().__init__()
        rank, world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(2)
        self.heads, self.scale = 4 // world, scale
        qkv = torch.randn(3, 4, 2, 8).chunk(world, 1)[rank].flatten(0, 2)
        out = torch.randn(8, 4, 2).chunk(world, 1)[rank].flatten(1)
        rows = -(-5 // world)
        padded = nn.functional.pad(torch.randn(5, 8), (0, 0, 0, rows * world - 5))
        if not seeded:
            torch.manual_seed(rank + 10 * world)
            qkv = torch.randn(qkv.shape)
        self.qkv = nn.Linear(8, len(qkv))
        self.qkv.weight, self.qkv.bias = nn.Parameter(qkv), nn.Parameter(torch.zeros(len(qkv)))
        self.out = nn.Parameter(out.T.contiguous())
        self.table = nn.Parameter(padded[rank * rows : (rank + 1) * rows].clone())
        self.first = rank * rows

    def forward(self, tokens: Any) -> Any:
        """Embed in parts, and attend with a rank's heads."""
        local = tokens - self.first
        mine = (local >= 0) & (local < len(self.table))
        rows = self.table[local.clamp(0, len(self.table) - 1)]
        h = SumFrom.apply(torch.where(mine[..., None], rows, 0.0), None)
        q, k, v = self.qkv(CopyTo.apply(h, None)).unflatten(-1, (3, -1, 2)).permute(2, 0, 3, 1, 4)
        width = self.heads * 2 if self.scale else 8
        scores = torch.softmax(q @ k.transpose(-1, -2) / width**0.5, -1)
        out = (scores @ v).transpose(1, 2).flatten(2) @ self.out
        return h + SumFrom.apply(out, None)


of_split = alone()
TOKENS = (
    torch.tensor([[0, 4, 2], [3, 1, 4]]),
    torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(3)),
)


def columns_and_rows() -> Any:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("model",))
    return parallelize_module(plain(), mesh, {"0": ColwiseParallel(), "3": RowwiseParallel()})


def sharded() -> Any:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("data",))
    model = plain()
    for layer in (model[0], model[3]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


BATCH = tuple(torch.randn(3, n, generator=torch.Generator().manual_seed(n)) for n in (4, 2))
SHARED: dict[str, Any] = {"equal": ["x", "y"]}


@dataclass(frozen=True)
class Case:
    """A step.

    Attributes:
        step: the function.
        model: makes the model.
        optimizer: makes its optimiser.
        wrong: names of what differs from one device, as patterns apart by blanks; empty of a right step.
        batch: what each rank is given, or a function of the rank.
        options: of ``popsr.prove``.
    """

    step: Any
    model: Any = plain
    optimizer: Any = adamw
    wrong: str = ""
    batch: tuple[Any, ...] = BATCH
    options: dict[str, Any] = field(default_factory=dict)


STEPS: dict[str, Case] = {
    "mean of gradients": Case(training(mean)),
    "sum of gradients": Case(training(added), wrong="*.weight *.bias *exp*"),
    "momentum": Case(training(mean), optimizer=momentum),
    "clipped": Case(training(mean_clipped), optimizer=momentum),
    "clipped before the mean": Case(
        training(clipped_alone), optimizer=momentum, wrong="*.weight *.bias *buffer"
    ),
    "accumulated": Case(accumulating, batch=tuple(t[:2] for t in BATCH)),
    "dropout": Case(training(mean), model=lambda: plain(dropout=0.5)),
    "labels that count": Case(counted, batch=(own_labels,)),
    "means of labels that count": Case(averaged, batch=(own_labels,), wrong="*.weight *.bias *exp*"),
    "DistributedDataParallel": Case(training(), model=lambda: DistributedDataParallel(plain())),
    "DistributedDataParallel, scaled": Case(
        lambda m, o, x, y: training(factor=dist.get_world_size())(m, o, x, y),
        model=lambda: DistributedDataParallel(plain()),
        wrong="*.weight *.bias *exp* result",
    ),
    "fully_shard": Case(training(), model=sharded),
    "fully_shard, clipped": Case(training(clipped), model=sharded, optimizer=momentum),
    "parallelize_module": Case(training(), model=columns_and_rows, options=SHARED),
    "cut by hand": Case(of_split, model=Split, batch=TOKENS, options=SHARED),
    "cut by hand, scaled by local heads": Case(
        of_split,
        model=lambda: Split(scale=True),
        batch=TOKENS,
        options=SHARED,
        wrong="out table qkv.* *exp* result",
    ),
}
