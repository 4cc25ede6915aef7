"""GPT in PyTorch, in one piece: takes the same state dict, and is trained by PyTorch's own AdamW."""

from typing import Dict, List

import numpy as np
import torch
from torch import nn
from torch.nn import functional


class Projection(nn.Module):
    """A dense layer whose weight is (in, out)."""

    def __init__(self, wide_in: int, wide_out: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(wide_in, wide_out))
        self.bias = nn.Parameter(torch.zeros(wide_out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.addmm(self.bias, x.flatten(0, -2), self.weight).unflatten(0, x.shape[:-1])


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = Projection(hidden, 3 * hidden), Projection(hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.c_attn(x).chunk(3, dim=-1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(mixed.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.c_fc, self.c_proj = Projection(hidden, 4 * hidden), Projection(4 * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c_proj(functional.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int, eps: float):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(hidden, eps), nn.LayerNorm(hidden, eps)
        self.attn, self.mlp = Attention(hidden, heads), Mlp(hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


class GPT(nn.Module):
    def __init__(self, model):
        super().__init__()
        hidden = model.hidden_size
        self.wte = nn.Embedding(model.embedding.vocab_size, hidden)
        self.wpe = nn.Embedding(model.embedding.max_positional_length, hidden)
        self.h = nn.ModuleList(Block(hidden, model.attention.heads, model.eps) for _ in range(model.layers))
        self.norm_f = nn.LayerNorm(hidden, model.eps)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[-1]]
        for block in self.h:
            x = block(x)
        return self.norm_f(x) @ self.wte.weight.T


def losses(config, state: Dict[str, np.ndarray], tokens, labels, rates: List[float]) -> np.ndarray:
    """Loss of each micro batch in each update, (updates, micro batches), and norms of gradients before clipping."""
    model, optimizer = GPT(config.model), config.training.optimizer
    model.load_state_dict({name: torch.tensor(array) for name, array in state.items()})
    plain = [p for name, p in model.named_parameters() if "norm" in name or name.endswith("bias")]
    decayed = [p for name, p in model.named_parameters() if not ("norm" in name or name.endswith("bias"))]
    adam = torch.optim.AdamW(
        [{"params": plain, "weight_decay": 0.0}, {"params": decayed, "weight_decay": optimizer.weight_decay}],
        betas=(optimizer.beta1, optimizer.beta2),
        eps=optimizer.eps,
    )
    found, norms = [], []
    for words, targets, rate in zip(tokens, labels, rates):
        for group in adam.param_groups:
            group["lr"] = rate
        adam.zero_grad()
        each = []
        for x, y in zip(torch.tensor(words).long(), torch.tensor(targets).long()):
            loss = functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
            (loss / len(words)).backward()
            each.append(loss.item())
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), optimizer.gradient_clipping)))
        adam.step()
        found.append(each)
    return np.array(found), np.array(norms)
