"""Small models of each kind, with what wrappers and tensor parallelism need to know of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.distributed._functional_collectives as functional  # noqa: E402
import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402
from torch.distributed.tensor import DTensor, Replicate, Shard  # noqa: E402
from torch.distributed.tensor.parallel import (  # noqa: E402
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
)

__all__ = ["MODELS", "Model"]

WIDTH, WORDS, LENGTH, ROWS = 8, 12, 4, 4


@dataclass(frozen=True)
class Model:
    """A kind of model.

    Attributes:
        make: makes the module, from torch's generator.
        batch: a batch of a generator: inputs and classes.
        parts: names of the modules that nested wrappers take one by one.
        tensor: styles of tensor parallelism by the names of layers.
        sequence: those of sequence parallelism; default the same.
        draws: True if it draws random numbers.
        owned: names of modules that each rank has for itself.
        uncut: True if it has layers that tensor parallelism leaves as they are.
    """

    make: Callable[[], Any]
    batch: Callable[[Any], tuple[Any, Any]]
    parts: tuple[str, ...]
    tensor: Callable[[], dict[str, Any]]
    sequence: Callable[[], dict[str, Any]] | None = None
    draws: bool = False
    owned: tuple[str, ...] = ()
    uncut: bool = False


class Mlp(nn.Module):
    """Two layers after an embedding of the features."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 16), nn.ReLU(), nn.Linear(16, WIDTH))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, x: Any) -> Any:
        return self.head(x + self.inner(x))


class Block(nn.Module):
    """Attention and a layer, as in GPT-2."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 16), nn.Linear(16, WIDTH)
        self.dropout = dropout

    def forward(self, x: Any) -> Any:
        h = self.before(x)
        query, key, value = (
            layer(h).unflatten(-1, (-1, WIDTH // 2)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        made = F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2)
        x = x + F.dropout(self.out(made), self.dropout, self.training)
        return x + F.dropout(self.down(F.gelu(self.up(self.after(x)))), self.dropout, self.training)


class Gpt(nn.Module):
    """One block; the head has the weight of the embedding."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block(dropout) for _ in range(1))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Any) -> Any:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Convolutions(nn.Module):
    """Two convolutions with batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.second = nn.Sequential(
            nn.Conv2d(4, WIDTH, 3, stride=2, padding=1), nn.BatchNorm2d(WIDTH), nn.ReLU()
        )
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, x: Any) -> Any:
        return self.head(self.second(self.first(x)).mean((2, 3)))


class Experts(nn.Module):
    """A router and an expert on each rank, which takes tokens of all ranks by ``all_to_all``.

    Attributes:
        mesh: of ranks that have the same tokens, of which each sends its part; None if each has tokens of its own.
    """

    def __init__(self) -> None:
        super().__init__()
        self.size = dist.get_world_size()
        self.mesh: Any = None
        self.tokens, self.router = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, self.size)
        self.head = nn.Linear(WIDTH, WORDS)
        self.expert = nn.Linear(WIDTH, WIDTH)
        own = torch.Generator().manual_seed(dist.get_rank())
        with torch.no_grad():
            self.expert.weight.copy_(torch.randn(WIDTH, WIDTH, generator=own) / 3)

    def exchanged(self, parts: Any) -> Any:
        sizes = [parts.shape[0] // self.size] * self.size
        everyone: Any = dist.group.WORLD
        return functional.all_to_all_single_autograd(parts, sizes, sizes, everyone)

    def part(self, t: Any) -> Any:
        if self.mesh is None:
            return t
        whole = DTensor.from_local(t, self.mesh, [Replicate()], run_check=False)
        return whole.redistribute(placements=[Shard(0)]).to_local()

    def whole(self, t: Any) -> Any:
        if self.mesh is None:
            return t
        return DTensor.from_local(t, self.mesh, [Shard(0)], run_check=False).full_tensor()

    def forward(self, tokens: Any) -> Any:
        whole = self.tokens(tokens).flatten(0, 1)
        x, shares = self.part(whole), self.part(self.router(whole).softmax(-1))
        weights, chosen = shares.t().topk(2)  # each expert takes two tokens of each rank
        sent = x[chosen.flatten()].to(self.expert.weight.dtype)
        made = self.exchanged(F.relu(self.expert(self.exchanged(sent)))).to(x.dtype)
        made = made * weights.flatten()[:, None]
        x = self.whole(x.index_add(0, chosen.flatten(), made))
        return self.head(x).view(*tokens.shape, -1)


class Recurrent(nn.Module):
    """An embedding, a cell that runs over the sequence, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.cell = nn.Embedding(WORDS, WIDTH), nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.cell(self.tokens(tokens))[0])


def _features(g: Any) -> tuple[Any, Any]:
    return torch.randn(ROWS, WIDTH, generator=g), torch.randint(0, WORDS, (ROWS,), generator=g)


def _images(g: Any) -> tuple[Any, Any]:
    return torch.randn(ROWS, 1, 6, 6, generator=g), torch.randint(0, WORDS, (ROWS,), generator=g)


def _sequences(g: Any) -> tuple[Any, Any]:
    drawn = torch.randint(0, WORDS, (2, LENGTH + 1), generator=g)
    return drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()


_BLOCKS = ("blocks.0",)


def _whole_head() -> dict[str, Any]:
    return {"head": ColwiseParallel(output_layouts=Replicate())}


def _mlp_tensor() -> dict[str, Any]:
    return {"inner.1": ColwiseParallel(), "inner.3": RowwiseParallel(), **_whole_head()}


def _mlp_sequence() -> dict[str, Any]:
    return {
        "inner": PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(0)),
        "inner.0": SequenceParallel(sequence_dim=0),
        "inner.1": ColwiseParallel(input_layouts=Shard(0)),
        "inner.3": RowwiseParallel(),
        **_whole_head(),
    }


def _gpt_tensor() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for block in _BLOCKS:
        found |= {f"{block}.{name}": ColwiseParallel() for name in ("query", "key", "value", "up")}
        found |= {f"{block}.{name}": RowwiseParallel() for name in ("out", "down")}
    return found


def _gpt_sequence() -> dict[str, Any]:
    cut = Shard(1)
    found: dict[str, Any] = {
        "tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=cut),
        "places": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(0)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=cut, output_layouts=Replicate()),
    }
    for block in _BLOCKS:
        found |= {f"{block}.{name}": SequenceParallel() for name in ("before", "after")}
        found |= {
            f"{block}.{name}": ColwiseParallel(input_layouts=cut) for name in ("query", "key", "value", "up")
        }
        found |= {f"{block}.{name}": RowwiseParallel(output_layouts=cut) for name in ("out", "down")}
    return found


_GPT: dict[str, Any] = {
    "batch": _sequences,
    "parts": _BLOCKS,
    "tensor": _gpt_tensor,
    "sequence": _gpt_sequence,
}

MODELS: dict[str, Model] = {
    "MLP": Model(Mlp, _features, ("inner",), _mlp_tensor, _mlp_sequence),
    "GPT": Model(Gpt, **_GPT),
    "GPT, dropout": Model(lambda: Gpt(0.1), **_GPT, draws=True),
    "convolutions, batch norm": Model(Convolutions, _images, ("first", "second"), _whole_head, uncut=True),
    "experts, `all_to_all`": Model(
        Experts, _sequences, ("head",), _whole_head, owned=("expert",), uncut=True
    ),
    "embedding, LSTM": Model(Recurrent, _sequences, ("tokens", "head"), _whole_head, uncut=True),
}
"""Kinds of models by name."""
