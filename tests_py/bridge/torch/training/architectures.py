"""Small models of many kinds, each with a loss of one batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402

from tests_py.bridge.torch.models import Gpt, Mlp  # noqa: E402


class Residual(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm_one = nn.BatchNorm2d(after)
        self.two = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm_two = nn.BatchNorm2d(after)
        self.short = nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: Any) -> Any:
        y = F.relu(self.norm_one(self.one(x)))
        return F.relu(self.norm_two(self.two(y)) + self.short(x))


class ResNet(nn.Module):
    """18 layers, narrow: four stages of two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        widths = (4, 4, 8, 8, 12, 12, 16, 16)
        blocks = [
            Residual(widths[max(i - 1, 0)], width, 2 if i in (2, 4, 6) else 1)
            for i, width in enumerate(widths)
        ]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(16, 4)

    def forward(self, x: Any) -> Any:
        return self.head(F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1).flatten(1))


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, 4)
        self.kind = nn.Parameter(torch.zeros(1, 1, 8))
        self.places = nn.Parameter(torch.zeros(1, 17, 8))
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.kind.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.encoder(x)[:, 0])


class Rms(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Any) -> Any:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale


class Llama(nn.Module):
    """Rotary embeddings, grouped queries, a gated layer."""

    def __init__(self, width: int = 16, heads: int = 4, groups: int = 2) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.tokens = nn.Embedding(11, width)
        self.norms = nn.ModuleList(Rms(width) for _ in range(3))
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * groups * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, 24, bias=False) for _ in range(2))
        self.down = nn.Linear(24, width, bias=False)
        self.head = nn.Linear(width, 11, bias=False)
        self.cos: Any
        self.sin: Any
        angles = torch.outer(torch.arange(8.0), 100.0 ** -(torch.arange(0, self.size, 2) / self.size))
        self.register_buffer("cos", angles.cos().repeat(1, 2))
        self.register_buffer("sin", angles.sin().repeat(1, 2))

    def rotate(self, x: Any) -> Any:
        length = x.shape[-2]
        one, two = x.chunk(2, -1)
        return x * self.cos[:length] + torch.cat([-two, one], -1) * self.sin[:length]

    def forward(self, tokens: Any) -> Any:
        x = self.tokens(tokens)
        batch, length, width = x.shape
        h = self.norms[0](x)
        q = self.rotate(self.q(h).view(batch, length, self.heads, self.size).transpose(1, 2))
        k, v = self.kv(h).view(batch, length, 2 * self.groups, self.size).transpose(1, 2).chunk(2, 1)
        k, v = (each.repeat_interleave(self.heads // self.groups, 1) for each in (self.rotate(k), v))
        scores = (q @ k.transpose(-1, -2)) / self.size**0.5
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        made = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        x = x + self.out(made.transpose(1, 2).reshape(batch, length, width))
        h = self.norms[1](x)
        x = x + self.down(F.silu(self.gate(h)) * self.up(h))
        return self.head(self.norms[2](x))


class Bert(nn.Module):
    """Masked words: the loss counts some positions."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.kinds = nn.Embedding(11, 8, padding_idx=0), nn.Embedding(2, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(8, 11)

    def forward(self, tokens: Any) -> Any:
        x = self.tokens(tokens) + self.kinds(torch.zeros_like(tokens))
        return self.head(self.encoder(x, src_key_padding_mask=tokens == 0))


class T5(nn.Module):
    """An encoder and a decoder that looks at it."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, 8)
        self.body = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)

    def forward(self, tokens: Any) -> Any:
        x = self.tokens(tokens)
        mask = torch.full((x.shape[1], x.shape[1]), float("-inf")).triu(1)
        return self.body(x, x, tgt_mask=mask, tgt_is_causal=True) @ self.tokens.weight.t()


class Experts(nn.Module):
    """A mixture of experts, all computed, the two best weighted."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.router = nn.Embedding(11, 8), nn.Linear(8, 4)
        self.up, self.down = nn.Parameter(torch.zeros(4, 8, 16)), nn.Parameter(torch.zeros(4, 16, 8))
        self.head = nn.Linear(8, 11)

    def forward(self, tokens: Any) -> Any:
        x = self.tokens(tokens)
        best, which = self.router(x).topk(2, -1)
        weights = torch.zeros(*x.shape[:-1], 4).scatter(-1, which, best.softmax(-1))
        made = torch.einsum("blw,ewh->bleh", x, self.up).relu()
        return self.head(x + torch.einsum("bleh,ehw,ble->blw", made, self.down, weights))


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.body, self.head = (
            nn.Embedding(11, 6),
            nn.LSTM(6, 8, 2, batch_first=True),
            nn.Linear(8, 11),
        )

    def forward(self, tokens: Any) -> Any:
        return self.head(self.body(self.tokens(tokens))[0])


class Gru(Lstm):
    def __init__(self) -> None:
        super().__init__()
        self.body: Any = nn.GRU(6, 8, batch_first=True)


class UNet(nn.Module):
    """Diffusion: the noise of an image at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Linear(4, 8)
        self.down, self.mid = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 1, 1)
        self.norm = nn.GroupNorm(2, 8)
        self.up, self.out = nn.ConvTranspose2d(8, 8, 2, 2), nn.Conv2d(11, 3, 3, 1, 1)

    def forward(self, image: Any) -> Any:
        phase = image.mean((1, 2, 3))[:, None] * torch.arange(1.0, 3.0)
        time = self.time(torch.cat([phase.sin(), phase.cos()], -1))
        h = F.silu(self.norm(self.down(image) + time[:, :, None, None]))
        h = self.up(F.silu(self.mid(h)))
        h = F.interpolate(F.avg_pool2d(h, 2), scale_factor=2, mode="nearest")
        return self.out(torch.cat([image, h], 1))


class Word2vec(nn.Module):
    """Skip grams with negative samples."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.contexts = nn.Embedding(11, 6), nn.Embedding(11, 6)

    def forward(self, tokens: Any) -> Any:
        return torch.einsum("blw,bmw->blm", self.words(tokens), self.contexts(tokens))


def tokens_of(rank: int) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(rank)
    drawn = torch.randint(1, 11, (2, 7), generator=generator)
    return drawn[:, :-1].clone(), drawn[:, 1:].clone()


def images_of(rank: int) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(4, 3, 16, 16, generator=generator), torch.randint(0, 4, (4,), generator=generator)


def classes(out: Any, target: Any) -> Any:
    return F.cross_entropy(out.reshape(-1, out.shape[-1]), target.reshape(-1))


def smoothed(out: Any, target: Any) -> Any:
    return F.cross_entropy(out, target, label_smoothing=0.1)


def some_classes(out: Any, target: Any) -> Any:
    """Every second position counts."""
    counted = target.where(torch.arange(target.shape[1]) % 2 == 0, torch.tensor(-100))
    return F.cross_entropy(out.transpose(1, 2), counted)


def denoising(out: Any, _target: Any) -> Any:
    return F.mse_loss(out, torch.ones_like(out)) + 0.1 * F.smooth_l1_loss(out, torch.zeros_like(out))


def neighbours(out: Any, _target: Any) -> Any:
    near = (torch.arange(out.shape[1])[:, None] - torch.arange(out.shape[2])).abs() == 1
    return F.binary_cross_entropy_with_logits(out, near.expand_as(out).float())


def vectors_of(rank: int) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(5, 6, generator=generator), torch.randint(0, 4, (5,), generator=generator)


Loss = Callable[[Any, Any], Any]
MODELS: dict[str, tuple[Callable[[], Any], Callable[[int], Any], Loss]] = {
    "MLP": (Mlp, vectors_of, classes),
    "ResNet-18": (ResNet, images_of, smoothed),
    "ViT": (ViT, images_of, classes),
    "GPT-2": (Gpt, tokens_of, classes),
    "LLaMA": (Llama, tokens_of, classes),
    "BERT": (Bert, tokens_of, some_classes),
    "T5": (T5, tokens_of, classes),
    "mixture of experts": (Experts, tokens_of, classes),
    "LSTM": (Lstm, tokens_of, classes),
    "GRU": (Gru, tokens_of, classes),
    "diffusion U-Net": (UNet, images_of, denoising),
    "word2vec": (Word2vec, tokens_of, neighbours),
}
