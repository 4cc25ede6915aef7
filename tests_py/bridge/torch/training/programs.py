"""Programs of training: each makes a model and an optimiser, and has a step, as its library's users write them.

``wrapped=False`` leaves out what reduces the gradients. Libraries are imported by the functions that need them.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss, scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel

__all__ = ["PROGRAMS", "Program"]


@dataclass(frozen=True)
class Program:
    """A program of training.

    Attributes:
        needs: packages beside torch.
        model: makes the model, with or without what reduces gradients.
        optimizer: makes the optimiser of it.
        step: the step.
        batch: the batch of a rank.
    """

    needs: tuple[str, ...]
    model: Callable[[bool], nn.Module]
    optimizer: Callable[[Any], Any]
    step: Callable[..., Any]
    batch: Callable[[int], tuple[Any, ...]]


def _numbers(rank: int) -> tuple[Any, ...]:
    drawn = torch.Generator().manual_seed(100 + rank)
    return torch.randn(2, 4, generator=drawn), torch.randn(2, 2, generator=drawn)


def _tokens(rank: int) -> tuple[Any, ...]:
    drawn = torch.Generator().manual_seed(100 + rank)
    return (torch.randint(0, 64, (2, 8), generator=drawn),)


def _adamw(model: Any) -> Any:
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)


def _ddp(model: nn.Module, wrapped: bool) -> nn.Module:
    return DistributedDataParallel(model) if wrapped else model


def _mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


# A loop as nanoGPT's: its rate is set anew, accumulation by a switch of the wrapper, autocast, a scaler that is off


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Any) -> Any:
        batch, time, width = x.shape
        parts = self.attention(self.ln_1(x)).split(width, dim=2)
        q, k, v = (each.view(batch, time, self.heads, -1).transpose(1, 2) for each in parts)
        y = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(y.transpose(1, 2).contiguous().view(batch, time, width))
        return x + self.mlp(self.ln_2(x))


class _Gpt(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(64, width), nn.Embedding(8, width)
        self.blocks = nn.ModuleList([_Block(width, 2)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 64, bias=False)
        self.tokens.weight = self.head.weight

    def forward(self, ids: Any) -> Any:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def _gpt(wrapped: bool) -> nn.Module:
    torch.manual_seed(0)
    return _ddp(_Gpt(), wrapped)


def _fused(model: Any) -> Any:
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), fused=True)


def _rate(iteration: int, warmup: int = 2, decay: int = 10) -> float:
    if iteration < warmup:
        return 1e-3 * (iteration + 1) / (warmup + 1)
    return 1e-4 + 0.5 * (1.0 + math.cos(math.pi * (iteration - warmup) / (decay - warmup))) * 9e-4


def _tokens_and_iteration(rank: int) -> tuple[Any, ...]:
    return (*_tokens(rank), 3)


_OFF = torch.amp.GradScaler("cpu", enabled=False)


def _gpt_step(model: Any, optimizer: Any, ids: Any, iteration: int) -> Any:
    for group in optimizer.param_groups:
        group["lr"] = _rate(iteration)
    for micro in range(2):
        if isinstance(model, DistributedDataParallel):
            model.require_backward_grad_sync = micro == 1
        with torch.amp.autocast(device_type="cpu", dtype=torch.bfloat16):
            loss = cross_entropy(model(ids).flatten(0, 1), ids.flatten()) / 2
        _OFF.scale(loss).backward()
    _OFF.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    _OFF.step(optimizer)
    _OFF.update()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


# Hugging Face


def _quiet() -> None:
    from transformers.utils import logging

    logging.set_verbosity_error()


def _gpt2_model() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    _quiet()
    torch.manual_seed(0)
    sizes = {"n_layer": 1, "n_embd": 16, "n_head": 2, "vocab_size": 64, "n_positions": 8}
    drops = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    return GPT2LMHeadModel(GPT2Config(**sizes, **drops, bos_token_id=0, eos_token_id=0))


def _llama(wrapped: bool) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    _quiet()
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 32, "vocab_size": 64}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 8}
    return _ddp(LlamaForCausalLM(LlamaConfig(**sizes, **heads)), wrapped)


def _language_step(model: Any, optimizer: Any, ids: Any) -> Any:
    optimizer.zero_grad()
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


def _trainer(wrapped: bool) -> nn.Module:
    from transformers import Trainer, TrainingArguments

    model = _gpt2_model()
    settings = TrainingArguments(output_dir=tempfile.gettempdir(), use_cpu=True, report_to=[])
    trainer = Trainer(model=model, args=settings)
    trainer.current_gradient_accumulation_steps = 1  # as Trainer.train sets it
    made = trainer.accelerator.prepare(model) if wrapped else model
    made.trainer = trainer
    return made


def _trainer_step(model: Any, optimizer: Any, ids: Any) -> Any:
    loss = model.trainer.training_step(model, {"input_ids": ids, "labels": ids})
    model.trainer.accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    model.zero_grad()
    return loss


def _adapters(wrapped: bool) -> nn.Module:
    from peft import LoraConfig, get_peft_model

    settings = LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, lora_dropout=0.0)
    return _ddp(get_peft_model(_gpt2_model(), settings), wrapped)


# Accelerate, Lightning


def _accelerated(wrapped: bool) -> nn.Module:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    made = accelerator.prepare(_mlp()) if wrapped else _mlp()
    made.accelerator = accelerator
    return made


def _accelerated_step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    accelerator = model.accelerator
    with accelerator.accumulate(model):
        loss = mse_loss(model(x), y)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return loss.detach()


def _lightning(wrapped: bool) -> nn.Module:
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = _mlp()

        def forward(self, *args: Any) -> Any:  # as the strategy for DDP calls it
            return self.training_step(*args)

        def training_step(self, batch: Any, _: int) -> Any:
            return mse_loss(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return _adamw(self)

    return _ddp(Module(), wrapped)


def _lightning_optimizer(model: Any) -> Any:
    return getattr(model, "module", model).configure_optimizers()


def _lightning_step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    def closure() -> Any:
        loss = model((x, y), 0)
        optimizer.zero_grad()
        loss.backward()
        return loss.detach()

    optimizer.step(closure)


# The first stage of ZeRO, written with torch: each rank updates a shard of all weights


class _Sharded(nn.Module):
    def __init__(self, wrapped: bool) -> None:
        super().__init__()
        self.net, self.reduces = _mlp(), wrapped
        flat = torch.cat([p.detach().flatten() for p in self.net.parameters()])
        size, rank = dist.get_world_size(), dist.get_rank()
        self.shard = nn.Parameter(flat.view(size, -1)[rank].clone())

    def forward(self, x: Any) -> Any:
        return self.net(x)


def _shard_optimizer(model: Any) -> Any:
    return torch.optim.Adam([model.shard], lr=1e-3)


def _zero_step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    weights = list(model.net.parameters())
    loss = mse_loss(model(x), y)
    loss.backward()
    flat = torch.cat([p.grad.flatten() for p in weights])
    if model.reduces:
        gradient = torch.empty_like(model.shard)
        dist.reduce_scatter_tensor(gradient, flat)
        model.shard.grad = gradient / dist.get_world_size()
    else:
        model.shard.grad = flat.view(dist.get_world_size(), -1)[dist.get_rank()].clone()
    optimizer.step()
    with torch.no_grad():
        whole = torch.empty_like(flat)
        if model.reduces:
            dist.all_gather_into_tensor(whole, model.shard.detach())
        else:
            whole = flat
        start = 0
        for p in weights:
            p.copy_(whole[start : start + p.numel()].view_as(p))
            start += p.numel()
    model.zero_grad()
    return loss.detach()


PROGRAMS = {
    "nanogpt": Program((), _gpt, _fused, _gpt_step, _tokens_and_iteration),
    "zero1": Program((), _Sharded, _shard_optimizer, _zero_step, _numbers),
    "llama": Program(("transformers",), _llama, _adamw, _language_step, _tokens),
    "trainer": Program(("transformers", "accelerate"), _trainer, _adamw, _trainer_step, _tokens),
    "peft": Program(("transformers", "peft"), _adapters, _adamw, _language_step, _tokens),
    "accelerate": Program(("accelerate",), _accelerated, _adamw, _accelerated_step, _numbers),
    "lightning": Program(("lightning",), _lightning, _lightning_optimizer, _lightning_step, _numbers),
}
