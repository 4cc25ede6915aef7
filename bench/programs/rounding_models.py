"""Small networks of PyTorch on data that packages bring: digits of scikit-learn, the topics of Python's own help.

A batch is a function of the seed and the step: a run that goes on in another process needs no state of a loader.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pydoc_data.topics import topics
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 (torch's own name of it)

Batch = tuple[torch.Tensor, torch.Tensor]
CONTEXT = 64  # characters that the GPT sees


@dataclass(frozen=True)
class Task:
    """A network, its data, and how it is trained."""

    model: Callable[[], nn.Module]
    data: Callable[[], tuple[Batch, Batch]]
    """Samples with their labels to train, and to validate."""
    lr: float
    """Highest learning rate."""
    steps: int
    batch: int
    """Samples of a step."""


def rate(step: int, lr: float, steps: int) -> float:
    """Learning rate of a step: a twentieth of the steps to warm up to ``lr``, then a cosine down to 0."""
    warm = max(1, steps // 20)
    if step < warm:
        return lr * (step + 1) / warm
    return lr * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def batch_of(data: Batch, size: int, seed: int, step: int) -> Batch:
    """Samples of a step."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    rows = torch.randint(len(data[0]), (size,), generator=generator)
    return data[0][rows], data[1][rows]


def loss_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy, of each position where there are some."""
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten())


# Data


@functools.cache
def digits() -> tuple[Batch, Batch]:
    """Images of 8 x 8, four fifths of them to train."""
    from sklearn.datasets import load_digits

    found = load_digits()
    images, labels = torch.tensor(found.images / 16, dtype=torch.float32), torch.tensor(found.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    cut = len(order) * 4 // 5
    train, validation = order[:cut], order[cut:]
    return (images[train], labels[train]), (images[validation], labels[validation])


@functools.cache
def characters() -> tuple[Batch, Batch]:
    """Windows of Python's help topics, character by character, with those that come next; each tenth to validate."""
    text = torch.tensor(list("\n".join(topics[name] for name in sorted(topics)).encode("ascii", "ignore")))
    count = (len(text) - 1) // CONTEXT
    x, y = (text[i : i + count * CONTEXT].view(count, CONTEXT) for i in (0, 1))
    validates = torch.arange(count) % 10 == 9
    return (x[~validates], y[~validates]), (x[validates], y[validates])


# Networks


class Block(nn.Module):
    """Attention and a network of two layers, each behind a layer norm and beside a residual connection."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Same shape as the input."""
        rows, positions, width = x.shape
        parts = self.qkv(self.norm1(x)).view(rows, positions, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(*parts, is_causal=self.causal)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, positions, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """Logits of the next character at each position."""

    def __init__(self, width: int = 64, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(128, width), nn.Embedding(CONTEXT, width)
        for each in (self.token, self.position):
            nn.init.normal_(each.weight, std=0.02)
        self.blocks = nn.Sequential(*(Block(width, heads, causal=True) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of each position."""
        x = self.token(x) + self.position.weight[: x.shape[1]]
        return self.head(self.norm(self.blocks(x)))


class ViT(nn.Module):
    """Logits of an image of 8 x 8, read as 16 patches of 2 x 2."""

    def __init__(self, width: int = 64, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.patch, self.position = nn.Linear(4, width), nn.Parameter(0.02 * torch.randn(16, width))
        self.blocks = nn.Sequential(*(Block(width, heads, causal=False) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of each image."""
        patches = x.view(-1, 4, 2, 4, 2).transpose(2, 3).reshape(-1, 16, 4)
        x = self.blocks(self.patch(patches) + self.position)
        return self.head(self.norm(x).mean(1))


def mlp() -> nn.Module:
    """Logits of an image of 8 x 8."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 10)
    )


TASKS: dict[str, Task] = {
    "MLP on digits": Task(mlp, digits, lr=1e-3, steps=600, batch=64),
    "GPT on characters": Task(GPT, characters, lr=1e-3, steps=400, batch=4),
    "ViT on digits": Task(ViT, digits, lr=1e-3, steps=400, batch=16),
}


def logits_of(model: nn.Module, x: torch.Tensor) -> Any:
    """Logits in fp32 arithmetic of the weights as they are, so that networks differ by their weights alone."""
    weights = {name: each.float() for name, each in model.named_parameters()}
    return torch.func.functional_call(model, weights, (x,))
