"""T5 in PyTorch. Takes the same state dict, and is trained by PyTorch's own AdamW."""

from typing import Dict

import numpy as np
import torch
from torch import nn
from torch.nn import functional


class Norm(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(model.d_model)), model.eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps))


def bucket(distance: int, two_sided: bool, buckets: int, most: int) -> int:
    """Of a key that is ``distance`` positions after the query."""
    offset = 0
    if two_sided:
        buckets //= 2
        offset, distance = (buckets if distance > 0 else 0), abs(distance)
    else:
        distance = max(-distance, 0)
    near = buckets // 2
    if distance < near:
        return offset + distance
    ratio = np.log(distance / near) / np.log(most / near)
    return offset + min(near + int(ratio * (buckets - near)), buckets - 1)


class Attention(nn.Module):
    def __init__(self, model, has_bias: bool):
        super().__init__()
        self.model, inner = model, model.heads * model.d_kv
        self.q, self.k, self.v = (nn.Linear(model.d_model, inner, bias=False) for _ in range(3))
        self.o = nn.Linear(inner, model.d_model, bias=False)
        if has_bias:
            self.relative_attention_bias = nn.Embedding(model.position_bias.buckets, model.heads)

    def bias(self, length: int, two_sided: bool) -> torch.Tensor:
        options = self.model.position_bias
        numbers = [
            [bucket(j - i, two_sided, options.buckets, options.max_distance) for j in range(length)]
            for i in range(length)
        ]
        return self.relative_attention_bias(torch.tensor(numbers)).permute(2, 0, 1)

    def forward(self, x: torch.Tensor, memory: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            f(t).unflatten(-1, (self.model.heads, -1)).transpose(1, 2)
            for f, t in ((self.q, x), (self.k, memory), (self.v, memory))
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0)
        return self.o(mixed.transpose(1, 2).flatten(2))


class Part(nn.Module):
    """A norm and one of the three kinds of layers, with a residual around them."""

    def __init__(self, model, kind: str, has_bias: bool = False):
        super().__init__()
        self.kind, self.layer_norm = kind, Norm(model)
        if kind == "DenseReluDense":
            dense = nn.Module()
            dense.wi = nn.Linear(model.d_model, model.d_ff, bias=False)
            dense.wo = nn.Linear(model.d_ff, model.d_model, bias=False)
            self.DenseReluDense = dense
        else:
            setattr(self, kind, Attention(model, has_bias))

    def forward(self, x: torch.Tensor, memory=None, bias=None) -> torch.Tensor:
        y = self.layer_norm(x)
        if self.kind == "DenseReluDense":
            return x + self.DenseReluDense.wo(self.DenseReluDense.wi(y).relu())
        return x + getattr(self, self.kind)(y, y if memory is None else memory, bias)


class Stack(nn.Module):
    def __init__(self, model, is_decoder: bool):
        super().__init__()
        self.is_decoder, self.block = is_decoder, nn.ModuleList()
        for i in range(model.layers):
            parts = [Part(model, "SelfAttention", i == 0)]
            if is_decoder:
                parts.append(Part(model, "EncDecAttention"))
            block = nn.Module()
            block.layer = nn.ModuleList([*parts, Part(model, "DenseReluDense")])
            self.block.append(block)
        self.final_layer_norm = Norm(model)

    def forward(self, x: torch.Tensor, is_missing: torch.Tensor, memory=None) -> torch.Tensor:
        length = x.shape[1]
        bias = self.block[0].layer[0].SelfAttention.bias(length, not self.is_decoder)[None]
        missing = torch.zeros(is_missing.shape).masked_fill(is_missing, -torch.inf)[:, None, None, :]
        bias = bias + (torch.full((length, length), -torch.inf).triu(1) if self.is_decoder else missing)
        for block in self.block:
            x = block.layer[0](x, bias=bias)
            if self.is_decoder:
                x = block.layer[1](x, memory, missing)
            x = block.layer[-1](x)
        return self.final_layer_norm(x)


class T5(nn.Module):
    def __init__(self, config, state: Dict[str, np.ndarray]):
        super().__init__()
        self.model = config.model
        self.shared = nn.Embedding(config.model.vocab_size, config.model.d_model)
        self.encoder, self.decoder = Stack(config.model, False), Stack(config.model, True)
        self.load_state_dict({name: torch.tensor(array) for name, array in state.items()})

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        is_missing = source == 0
        memory = self.encoder(self.shared(source), is_missing)
        x = self.decoder(self.shared(target), is_missing, memory)
        return (x / self.model.d_model**0.5) @ self.shared.weight.T


def train(config, state: Dict[str, np.ndarray], source, target, labels):
    """Losses (updates, micro batches), and the trained model."""
    model, o = T5(config, state), config.training.optimizer
    named = list(model.named_parameters())
    adam = torch.optim.AdamW(
        [
            {"params": [p for name, p in named if "norm" in name], "weight_decay": 0.0},
            {"params": [p for name, p in named if "norm" not in name], "weight_decay": o.weight_decay},
        ],
        lr=o.learning_rate,
        betas=(o.beta1, o.beta2),
        eps=o.eps,
    )
    found = []
    for batch in zip(source, target, labels):
        adam.zero_grad()
        each = []
        for x, y, wanted in zip(*(torch.tensor(part).long() for part in batch)):
            loss = functional.cross_entropy(model(x, y).flatten(0, 1), wanted.flatten(), ignore_index=-100)
            (loss / len(batch[0])).backward()
            each.append(loss.item())
        adam.step()
        found.append(each)
    return np.array(found), model


@torch.no_grad()
def translate(model: T5, source: np.ndarray, length: int) -> np.ndarray:
    """Greedy, (samples, length)."""
    words = torch.zeros(len(source), 1, dtype=torch.long)
    for _ in range(length):
        scores = model(torch.tensor(source).long(), words)
        words = torch.cat([words, scores[:, -1].argmax(-1, keepdim=True)], 1)
    return words[:, 1:].numpy()
