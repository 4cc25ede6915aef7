"""Models and training steps, written as users write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.distributed._functional_collectives as functional  # noqa: E402
import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402
from torch.autograd import Function  # noqa: E402


class Mlp(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first = nn.Linear(6, width)
        self.second = nn.Linear(width, 4)

    def forward(self, x: Any) -> Any:
        return self.second(F.relu(self.first(x)))


def seeded(module: Any) -> Any:
    """The module with parameters that do not depend on the state of torch's generator, which threads share."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn(p.shape, generator=generator) / p.shape[-1] ** 0.5)
    return module


def mlp() -> Any:
    return seeded(Mlp())


def labelled(rank: int) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(5, 6, generator=generator), torch.randint(0, 4, (5,), generator=generator)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        parts = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        made = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(made.transpose(1, 2).reshape(batch, length, width))


class Gpt(nn.Module):
    def __init__(self, words: int = 11, width: int = 8, layers: int = 2, length: int = 6) -> None:
        super().__init__()
        self.tokens = nn.Embedding(words, width)
        self.places = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(
            nn.ModuleList(
                [
                    nn.LayerNorm(width),
                    Attention(width, 2),
                    nn.LayerNorm(width),
                    nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)),
                ]
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Any) -> Any:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        blocks: Any = self.blocks
        for first, attention, second, mlp in blocks:
            x = x + attention(first(x))
            x = x + mlp(second(x))
        return self.head(self.norm(x))


def gpt() -> Any:
    return seeded(Gpt())


def tokens(rank: int) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(rank)
    drawn = torch.randint(0, 11, (2, 7), generator=generator)
    return drawn[:, :-1], drawn[:, 1:]


def world() -> Any:
    """The group of all ranks."""
    return dist.group.WORLD


def average(name: str, grad: Any) -> Any:
    return functional.all_reduce(grad, "avg", world())


def data_parallel(reduce: Callable[[str, Any], Any] = average) -> Callable[..., Any]:
    """A step whose gradients are averaged by hand."""

    def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))
        loss.backward()
        for name, p in model.named_parameters():
            p.grad = reduce(name, p.grad)
        optimizer.step()
        return loss

    return step


def plain_step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    """A step that leaves the gradients to the wrapper of the model."""
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


# Tensor parallelism by hand


class _ToSplit(Function):
    """Into layers that are split over a group: the gradient is the sum over it."""

    @staticmethod
    def forward(ctx: Any, x: Any, group: Any) -> Any:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return functional.all_reduce(grad, "sum", ctx.group), None


class _FromSplit(Function):
    """Out of layers that are split over a group: the sum over it."""

    @staticmethod
    def forward(ctx: Any, x: Any, group: Any) -> Any:
        return functional.all_reduce(x, "sum", group)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad, None


class SplitMlp(nn.Module):
    """A hidden layer that is split over pairs of ranks."""

    def __init__(self, forget: bool = False) -> None:
        super().__init__()
        pairs = [dist.new_group([i, i + 1]) for i in range(0, dist.get_world_size(), 2)]
        self.group = pairs[dist.get_rank() // 2]
        self.forget = forget
        whole = seeded(Mlp(8))
        self.inner = seeded(nn.Linear(6, 6))
        part = dist.get_rank() % 2
        self.first = nn.Linear(6, 4)
        self.second = nn.Linear(4, 4, bias=False)
        with torch.no_grad():
            self.first.weight.copy_(whole.first.weight[4 * part : 4 * part + 4])
            self.first.bias.copy_(whole.first.bias[4 * part : 4 * part + 4])
            self.second.weight.copy_(whole.second.weight[:, 4 * part : 4 * part + 4])

    def forward(self, x: Any) -> Any:
        x = self.inner(x)
        x = x if self.forget else _ToSplit.apply(x, self.group)
        h = F.relu(self.first(x))
        return _FromSplit.apply(self.second(h), self.group)


def across_pairs(name: str, grad: Any) -> Any:
    """The mean over the ranks with the same part of the model, of a mesh of pairs."""
    world = dist.get_world_size()
    groups = [dist.new_group(list(range(part, world, 2))) for part in (0, 1)]
    return functional.all_reduce(grad, "avg", groups[dist.get_rank() % 2])
