"""LLaMA in PyTorch: the whole sequence at once, without a cache. Takes the same state dict."""

from typing import Dict

import numpy as np
import torch
from torch import nn
from torch.nn import functional


def four_bits(weight: torch.Tensor, size: int) -> torch.Tensor:
    """A matrix (out, in) with each ``size`` inputs of an output on 16 levels between their extremes."""
    groups = weight.unflatten(1, (-1, size))
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    step = ((high.double() - low.double()) / 15).float()
    levels = ((groups.double() - low.double()) / step.double()).round().clamp(0, 15).float()
    return (levels * step + low).flatten(1)


class RMSNorm(nn.Module):
    def __init__(self, hidden: int, eps: float):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(hidden)), eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


class Attention(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model, size = model, model.head_size
        kv_features = size * model.attention.kv_heads
        self.q_proj = nn.Linear(model.hidden_size, model.hidden_size, bias=False)
        self.k_proj = nn.Linear(model.hidden_size, kv_features, bias=False)
        self.v_proj = nn.Linear(model.hidden_size, kv_features, bias=False)
        self.o_proj = nn.Linear(model.hidden_size, model.hidden_size, bias=False)

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        """Pairs (i, i + size / 2) as complex numbers, by the angles of their positions; (batch, heads, n, size)."""
        half = x.shape[-1] // 2
        frequencies = float(self.model.attention.rotary_base) ** (
            -torch.arange(half, dtype=torch.float64) / half
        )
        angles = torch.outer(torch.arange(x.shape[-2], dtype=torch.float64), frequencies)
        pairs = torch.complex(x[..., :half].double(), x[..., half:].double()) * torch.polar(
            torch.ones_like(angles), angles
        )
        return torch.cat([pairs.real, pairs.imag], -1).float()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size, a = self.model.head_size, self.model.attention
        q, k, v = (
            proj(x).unflatten(-1, (-1, size)).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        k, v = (t.repeat_interleave(a.heads // a.kv_heads, dim=1) for t in (self.turned(k), v))
        mixed = functional.scaled_dot_product_attention(self.turned(q), k, v, is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self, hidden: int, wide: int):
        super().__init__()
        self.gate_proj, self.up_proj = (
            nn.Linear(hidden, wide, bias=False),
            nn.Linear(hidden, wide, bias=False),
        )
        self.down_proj = nn.Linear(wide, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.self_attn, self.mlp = Attention(model), MLP(model.hidden_size, model.intermediate_size)
        self.input_layernorm = RMSNorm(model.hidden_size, model.eps)
        self.post_attention_layernorm = RMSNorm(model.hidden_size, model.eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.embed_tokens = nn.Embedding(model.embedding.vocab_size, model.hidden_size)
        self.layers = nn.ModuleList(Layer(model) for _ in range(model.layers))
        self.norm = RMSNorm(model.hidden_size, model.eps)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Llama(nn.Module):
    def __init__(self, config, state: Dict[str, np.ndarray]):
        super().__init__()
        self.model = Decoder(config.model)
        self.lm_head = nn.Linear(config.model.hidden_size, config.model.embedding.vocab_size, bias=False)
        self.load_state_dict({name: torch.tensor(array) for name, array in state.items()})
        size = config.model.quantisation.group_size
        if size:
            with torch.no_grad():
                for name, parameter in self.named_parameters():
                    if "_proj." in name:
                        parameter.copy_(four_bits(parameter, size))

    @torch.no_grad()
    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores after each position."""
        return self.lm_head(self.model(tokens))


def generate(config, state: Dict[str, np.ndarray], prompts: np.ndarray, pick=None):
    """Tokens after the prompts, and the scores after every position."""
    model, tokens = Llama(config, state), torch.tensor(prompts).long()
    for _ in range(config.inference.new_tokens):
        scores = model(tokens)
        values, candidates = scores[:, -1].topk(config.inference.top_k)
        chosen = candidates[:, 0] if pick is None else torch.tensor(pick(values.numpy(), candidates.numpy()))
        tokens = torch.cat([tokens, chosen[:, None]], 1)
    return tokens[:, prompts.shape[1] :].numpy(), model(tokens)[:, :-1].numpy()
