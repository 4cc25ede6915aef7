"""BERT in PyTorch with LAMB. Takes the same state dict."""

import re
from typing import Dict

import numpy as np
import torch
from torch import nn
from torch.nn import functional


def module(**parts: nn.Module) -> nn.Module:
    """A module of named parts."""
    result = nn.Module()
    for name, part in parts.items():
        setattr(result, name, part)
    return result


class Layer(nn.Module):
    def __init__(self, model):
        super().__init__()
        h, self.heads = model.hidden_size, model.attention.heads
        heads = {name: nn.Linear(h, h) for name in ("query", "key", "value")}
        self.attention = module(
            self=module(**heads), output=module(dense=nn.Linear(h, h), LayerNorm=nn.LayerNorm(h, model.eps))
        )
        self.intermediate = module(dense=nn.Linear(h, model.intermediate_size))
        self.output = module(
            dense=nn.Linear(model.intermediate_size, h), LayerNorm=nn.LayerNorm(h, model.eps)
        )

    def forward(self, x: torch.Tensor, is_there: torch.Tensor) -> torch.Tensor:
        own, output = self.attention.self, self.attention.output
        q, k, v = (
            f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (own.query, own.key, own.value)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=is_there[:, None, None, :])
        x = output.LayerNorm(x + output.dense(mixed.transpose(1, 2).flatten(2)))
        y = self.output.dense(functional.gelu(self.intermediate.dense(x)))
        return self.output.LayerNorm(x + y)


class Bert(nn.Module):
    def __init__(self, model):
        super().__init__()
        h, e = model.hidden_size, model.embedding
        self.bert = module(
            embeddings=module(
                word_embeddings=nn.Embedding(e.vocab_size, h),
                position_embeddings=nn.Embedding(e.max_positional_length, h),
                token_type_embeddings=nn.Embedding(e.types, h),
                LayerNorm=nn.LayerNorm(h, model.eps),
            ),
            encoder=module(layer=nn.ModuleList(Layer(model) for _ in range(model.layers))),
            pooler=module(dense=nn.Linear(h, h)),
        )
        predictions = module(transform=module(dense=nn.Linear(h, h), LayerNorm=nn.LayerNorm(h, model.eps)))
        predictions.bias = nn.Parameter(torch.zeros(e.vocab_size))
        self.cls = module(predictions=predictions, seq_relationship=nn.Linear(h, 2))

    def forward(self, words, types, is_there, positions):
        """Scores of the masked words, and of what follows."""
        e, head = self.bert.embeddings, self.cls.predictions
        x = (
            e.word_embeddings(words)
            + e.position_embeddings.weight[: words.shape[1]]
            + e.token_type_embeddings(types)
        )
        x = e.LayerNorm(x)
        for layer in self.bert.encoder.layer:
            x = layer(x, is_there)
        masked = x.flatten(0, 1)[positions.flatten()]
        masked = head.transform.LayerNorm(functional.gelu(head.transform.dense(masked)))
        first = torch.tanh(self.bert.pooler.dense(x[:, 0]))
        return masked @ e.word_embeddings.weight.T + head.bias, self.cls.seq_relationship(first)


class Lamb:
    """Adam's step, scaled by the norm of the weight over its own: of queries, keys and values together."""

    def __init__(self, model: nn.Module, options):
        self.options, self.steps, self.together = options, 0, {}
        self.moments = {
            name: (torch.zeros_like(p), torch.zeros_like(p)) for name, p in model.named_parameters()
        }
        for name, p in model.named_parameters():
            key = re.sub("query|key|value", "heads", name)
            self.together.setdefault(key, []).append((name, p))

    @torch.no_grad()
    def step(self, rate: float) -> None:
        o = self.options
        self.steps += 1
        for key, parts in self.together.items():
            steps = []
            for name, p in parts:
                m, v = self.moments[name]
                m.lerp_(p.grad, 1 - o.beta1)
                v.lerp_(p.grad * p.grad, 1 - o.beta2)
                x = m / (1 - o.beta1**self.steps) / ((v / (1 - o.beta2**self.steps)).sqrt() + o.eps)
                is_plain = key.endswith("bias") or "LayerNorm" in key
                steps.append(x if is_plain else x + o.weight_decay * p)
            weight = torch.cat([p.flatten() for _, p in parts]).norm().clamp(max=o.max_weight_norm)
            ratio = weight / torch.cat([x.flatten() for x in steps]).norm()
            for (_, p), x in zip(parts, steps):
                p -= rate * ratio * x


def losses(config, state: Dict[str, np.ndarray], batches) -> np.ndarray:
    """(updates, micro batches, 2): of masked words, of what follows."""
    model, found = Bert(config.model), []
    model.load_state_dict({name: torch.tensor(array) for name, array in state.items()})
    optimizer = Lamb(model, config.training.optimizer)
    for batch in batches:
        rate = float(batch["lr"].flat[0])
        parts = {
            name: torch.tensor(a).flatten(0, 1) for name, a in batch.items() if name not in ("lr", "seed")
        }
        model.zero_grad()
        each = []
        for i in range(len(parts["words"])):
            row = {name: part[i] for name, part in parts.items()}
            words, follows = model(row["words"], row["token_types"], row["mask"] > 0, row["masked_positions"])
            labels = row["masked_words"].flatten()
            pair = (
                functional.cross_entropy(words, labels, ignore_index=config.model.mlm.ignored),
                functional.cross_entropy(follows, row["follows"]),
            )
            (sum(pair) / len(parts["words"])).backward()
            each.append([loss.item() for loss in pair])
        optimizer.step(rate)
        found.append(each)
    return np.array(found)
