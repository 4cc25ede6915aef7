"""Rows of the programs of ``mixed``: lines of each part, right ones and wrong ones."""

from __future__ import annotations

__all__ = [
    "AVERAGES",
    "BY_HAND",
    "FORMS",
    "HEAD",
    "OF_PLAIN_TENSORS",
    "OF_SEVERAL_MESHES",
    "OPTIMIZERS",
    "PARTS",
    "PLACES",
    "RARE",
    "SCALED",
    "SCALERS",
    "SCHEDULED",
    "SCHEDULERS",
    "SHARD_PASSES",
    "STEPS",
    "TABLES",
    "TWO_AXES",
    "WRAPPED_PASSES",
]

HEAD = """\
import os, random
import torch
import torch.distributed as dist
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel, PrepareModuleInput, PrepareModuleOutput, RowwiseParallel, SequenceParallel, parallelize_module
)
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


def local(t):
    return t.to_local() if hasattr(t, "to_local") else t


def graded(params):
    return [p for p in params if p.grad is not None]


def by_mesh(params):
    found = {}
    for p in params:
        found.setdefault(getattr(p, "device_mesh", None), []).append(p)
    return list(found.values())


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.lin, self.head = nn.LayerNorm(4), nn.Linear(4, 8), nn.Linear(8, 4)
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("acc", torch.zeros(4))

    def forward(self, x):
        return self.head(torch.tanh(self.lin(self.norm(x))))


class Keeper:
    pass


"""
"""Begin of each program."""

TABLES: dict[str, list[str]] = {}
"""Rows of lines by the part of a program; the first is the plain one."""

_DATA = "init_device_mesh('cpu', (world,))"
FORMS: dict[str, list[str]] = {
    "shards": [
        "fully_shard(model)",
        "fully_shard(model.lin)\nfully_shard(model.head)\nfully_shard(model)",
        f"mesh = {_DATA}\nfully_shard(model.lin, mesh=mesh)\nfully_shard(model, mesh=mesh)",
        "fully_shard(model.lin, reshard_after_forward=False)\nfully_shard(model)",
        "fully_shard([model.lin, model.head])\nfully_shard(model)",
        "policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)\nfully_shard(model, mp_policy=policy)",
        "policy = MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16)\nfully_shard(model.head, mp_policy=policy)\n"
        "fully_shard(model, mp_policy=policy)",
        "policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, output_dtype=torch.float32)\n"
        "fully_shard(model, mp_policy=policy)",
        "policy = MixedPrecisionPolicy(reduce_dtype=torch.bfloat16)\nfully_shard(model.lin, mp_policy=policy)\n"
        "fully_shard(model)",
        "fully_shard(model, ignored_params={model.head.bias})",
        "fully_shard(model.lin)",
        "model.norm.requires_grad_(False)\nfully_shard(model.norm)\nfully_shard(model)",
        "fully_shard(model, shard_placement_fn=lambda p: Shard(p.ndim - 1))",
        "fully_shard(model)\nmodel.set_gradient_divide_factor(1.0)",
        "model.lin.weight.data.add_(rank)\nfully_shard(model)",
        "model.lin = nn.Sequential(nn.Dropout(0.5), model.lin)\nfully_shard(model)",
        "model.lin = torch.compile(model.lin)\nfully_shard(model)",
    ],
    "hybrid": [
        "mesh = init_device_mesh('cpu', (world // 2, 2), mesh_dim_names=('repeat', 'shard'))\n" + rest
        for rest in (
            "fully_shard(model, mesh=mesh)",
            "fully_shard(model.lin, mesh=mesh)\nfully_shard(model, mesh=mesh)",
            "fully_shard(model.lin, mesh=mesh['shard'])\nfully_shard(model, mesh=mesh)",
            "policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)\n"
            "fully_shard(model, mesh=mesh, mp_policy=policy)",
            "fully_shard(model, mesh=mesh)\nmodel.set_requires_all_reduce(False)",
            "model.lin.weight.data.add_(rank)\nfully_shard(model, mesh=mesh)",
            "fully_shard(model, mesh=mesh['shard'])",
        )
    ],
    "tensor": [
        f"mesh = {_DATA}\nparallelize_module(model, mesh, {{{rest}}})"
        for rest in (
            "'lin': ColwiseParallel(), 'head': RowwiseParallel()",
            "'lin': ColwiseParallel(output_layouts=Replicate())",
            "'lin': RowwiseParallel(input_layouts=Replicate())",
            "'head': RowwiseParallel(input_layouts=Replicate())",
            "'lin': ColwiseParallel(use_local_output=False), 'head': RowwiseParallel()",
            "'lin': ColwiseParallel(), 'head': RowwiseParallel(output_layouts=Shard(0))",
            "'norm': SequenceParallel(sequence_dim=0), 'lin': ColwiseParallel(input_layouts=Shard(0)), "
            "'head': RowwiseParallel()",
            "'norm': SequenceParallel(sequence_dim=0), 'lin': ColwiseParallel(input_layouts=Shard(0)), "
            "'head': RowwiseParallel(output_layouts=Shard(0))",
            "'': PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(0)), "
            "'norm': SequenceParallel(sequence_dim=0), 'lin': ColwiseParallel(input_layouts=Shard(0)), "
            "'head': RowwiseParallel()",
            "'lin': ColwiseParallel(), 'head': RowwiseParallel(), "
            "'': PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(0))",
            "'head': ColwiseParallel(output_layouts=Replicate())",
        )
    ],
    "shards of tensor": [
        "mesh = init_device_mesh('cpu', (world // 2, 2), mesh_dim_names=('data', 'tensor'))\n"
        f"parallelize_module(model, mesh['tensor'], {{{plan}}})\n{rest}"
        for plan, rest in (
            ("'lin': ColwiseParallel(), 'head': RowwiseParallel()", "fully_shard(model, mesh=mesh['data'])"),
            (
                "'lin': ColwiseParallel(), 'head': RowwiseParallel()",
                "fully_shard(model.lin, mesh=mesh['data'])\nfully_shard(model, mesh=mesh['data'])",
            ),
            ("'lin': ColwiseParallel(output_layouts=Replicate())", "fully_shard(model, mesh=mesh['data'])"),
            (
                "'norm': SequenceParallel(sequence_dim=0), 'lin': ColwiseParallel(input_layouts=Shard(0)), "
                "'head': RowwiseParallel()",
                "fully_shard(model, mesh=mesh['data'])",
            ),
            (
                "'lin': ColwiseParallel(), 'head': RowwiseParallel()",
                "policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)\n"
                "fully_shard(model, mesh=mesh['data'], mp_policy=policy)",
            ),
            ("'lin': ColwiseParallel(), 'head': RowwiseParallel()", "pass"),
        )
    ],
    "wrapped": [
        "model = DistributedDataParallel(model)",
        "model = DistributedDataParallel(model, gradient_as_bucket_view=True)",
        "model = DistributedDataParallel(model, broadcast_buffers=False)",
        "model = DistributedDataParallel(model, static_graph=True)",
        "model = DistributedDataParallel(model, find_unused_parameters=True)",
        "model.norm = nn.BatchNorm1d(4)\nmodel = DistributedDataParallel(model)",
        "model.lin = nn.Sequential(nn.Dropout(0.5), model.lin)\nmodel = DistributedDataParallel(model)",
    ],
    "by hand": ["pass", "model.norm = nn.BatchNorm1d(4)", "model.lin.weight.data.add_(rank)"],
}
"""Lines that wrap the model, by form."""

TABLES["loss"] = [
    "F.cross_entropy(made.float(), y.repeat(4)[: len(made)])",
    "made.float().square().mean()",
    "made.float().sum() * (1 + rank)",
    "F.mse_loss(made.float(), x.repeat(4, 1)[: len(made)])",
]
TABLES["passes"] = [
    "whole(x)",
    "whole(x)",
    "whole(x)\nwhole(x * 2)",
    "whole(x[:2])\nwhole(x[2:])",
    "whole(x * (1 + rank))",
    "whole(x)\noptimizer.zero_grad()\nwhole(x + 1)",
    "loss = forward(x) + forward(x * 2)\nbackward(loss)",
    "loss = loss_of(torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False))\nbackward(loss)",
    "with torch.no_grad():\n    model(x)\nwhole(x)",
    "with torch.autocast('cpu', dtype=torch.bfloat16):\n    loss = forward(x)\nbackward(loss)",
]
SHARD_PASSES = [
    "model.set_requires_gradient_sync(False)\nwhole(x)\nmodel.set_requires_gradient_sync(True)\nwhole(x * 2)",
    "model.set_requires_gradient_sync(False, recurse=False)\nwhole(x)\n"
    "model.set_requires_gradient_sync(True)\nwhole(x * 2)",
    "model.set_requires_gradient_sync(False)\nwhole(x)",
    "model.set_is_last_backward(False)\nwhole(x)\nmodel.set_is_last_backward(True)\nwhole(x * 2)",
    "model.set_reshard_after_backward(False)\nwhole(x)\nmodel.set_reshard_after_backward(True)\nwhole(x * 2)",
    "model.set_requires_all_reduce(False)\nwhole(x)\nmodel.set_requires_all_reduce(True)\nwhole(x * 2)",
    "model.unshard()\nwhole(x)\nmodel.reshard()",
]
WRAPPED_PASSES = [
    "with model.no_sync():\n    whole(x)\nwhole(x * 2)",
    "whole(x)\nwith model.no_sync():\n    whole(x * 2)",
    "with model.no_sync():\n    whole(x)",
    "loss = loss_of(model.module(x))\nbackward(loss)",
]
TABLES["reduce"] = [
    "pass",
    "pass",
    "pass",
    "for p in graded(model.parameters()):\n    local(p.grad).mul_(0.5)",
    "for p in graded(model.parameters()):\n    local(p.grad).mul_(1 + rank)",
    "for p in graded(model.parameters()):\n    dist.all_reduce(local(p.grad), dist.ReduceOp.AVG)",
    "for p in graded(model.parameters()):\n    local(p.grad).nan_to_num_(0.0)",
    "for p in graded(model.parameters()):\n    p.grad = None if rank < 0 else p.grad * 1",
]
BY_HAND = [
    "for p in graded(model.parameters()):\n    dist.all_reduce(p.grad, dist.ReduceOp.AVG)",
    "for p in graded(model.parameters()):\n    dist.all_reduce(p.grad, dist.ReduceOp.AVG)",
    "for p in graded(model.parameters()):\n    p.grad.div_(world)\n    dist.all_reduce(p.grad)",
    "for p in graded(model.parameters())[1:]:\n    dist.all_reduce(p.grad)",
]
TABLES["clip"] = [
    "pass",
    "pass",
    "clip_grad_norm_(params, 0.1)",
    "clip_grad_norm_(params, 0.1, foreach=False)",
    "clip_grad_norm_(params, 0.1, norm_type=float('inf'))",
    "clip_grad_value_(params, 0.01)",
    "norm = get_total_norm([p.grad for p in graded(params)])\nclip_grads_with_norm_(params, 0.1, norm)",
    "norm = get_total_norm([p.grad for p in graded(params)])\n"
    "norm = norm.full_tensor() if hasattr(norm, 'full_tensor') else norm\nclip_grads_with_norm_(params, 0.1, norm)",
    "norm = get_total_norm([local(p.grad) for p in graded(params)])\nfor p in graded(params):\n"
    "    local(p.grad).mul_(0.1 / (norm + 1e-6))",
    "norm = sum(local(p.grad).square().sum() for p in graded(params))\ndist.all_reduce(norm)\n"
    "for p in graded(params):\n    local(p.grad).mul_(0.1 / (norm.sqrt() + 1e-6))",
    "norm = clip_grad_norm_(params, 0.1)\nmodel_of(model).acc.fill_(1.0).mul_(local(norm))",
]
SCALERS = [
    "",
    "torch.amp.GradScaler('cpu')",
    "torch.amp.GradScaler('cpu', init_scale=8.0, growth_interval=2)",
    "torch.amp.GradScaler('cpu', init_scale=2.0 ** 126)",
    "torch.amp.GradScaler('cpu', enabled=False)",
    "torch.amp.GradScaler('cpu', init_scale=8.0 * (1 + rank))",
]
STEPS = [
    "optimizer.step()",
    "if torch.isfinite(loss):\n    optimizer.step()",
    "good = torch.isfinite(loss).float()\ndist.all_reduce(good, dist.ReduceOp.MIN)\nif good > 0:\n    optimizer.step()",
    "if all(torch.isfinite(local(p.grad)).all() for p in graded(model.parameters())):\n    optimizer.step()",
    "if rank == 0:\n    optimizer.step()",
]
SCALED = [
    "keeper.scaler.unscale_(optimizer)\n{clip}\nkeeper.scaler.step(optimizer)\nkeeper.scaler.update()",
    "{clip}\nkeeper.scaler.step(optimizer)\nkeeper.scaler.update()",
    "keeper.scaler.step(optimizer)\nkeeper.scaler.update()",
    "keeper.scaler.unscale_(optimizer)\n{clip}\noptimizer.step()\nkeeper.scaler.update()",
    "keeper.scaler.step(optimizer)\nif rank:\n    keeper.scaler.update()",
]
SCHEDULERS = [
    "",
    "lr_scheduler.StepLR(optimizer, 1, 0.5)",
    "lr_scheduler.LinearLR(optimizer, 0.5, total_iters=2)",
    "lr_scheduler.CosineAnnealingLR(optimizer, 10)",
    "lr_scheduler.LambdaLR(optimizer, lambda k: 1 / (1 + k))",
    "lr_scheduler.LambdaLR(optimizer, lambda k: 1 / (1 + k * (1 + rank)))",
    "lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10)",
    "lr_scheduler.SequentialLR(optimizer, [lr_scheduler.ConstantLR(optimizer, 0.5), "
    "lr_scheduler.StepLR(optimizer, 1)], [1])",
]
SCHEDULED = [
    "keeper.scheduler.step()",
    "keeper.scheduler.step()",
    "if rank == 0:\n    keeper.scheduler.step()",
    "for group in optimizer.param_groups:\n    group['lr'] = 0.1 * (1 + rank)",
]
AVERAGES = [
    ("", "pass"),
    (
        "[p.detach().clone() for p in model.parameters()]",
        "for q, p in zip(keeper.average, model.parameters()):\n    q.lerp_(p, 0.5)",
    ),
    (
        "{name: p.detach().clone() for name, p in model.named_parameters()}",
        "for name, p in model.named_parameters():\n    keeper.average[name].mul_(0.9).add_(p, alpha=0.1)",
    ),
    ("AveragedModel(model_of(model))", "keeper.average.update_parameters(model_of(model))"),
    (
        "AveragedModel(model_of(model), multi_avg_fn=get_ema_multi_avg_fn(0.9))",
        "keeper.average.update_parameters(model_of(model))",
    ),
    (
        "[p.detach().clone() for p in model.parameters()]",
        "for q, p in zip(keeper.average, model.parameters()):\n    q.lerp_(p, 0.5)\n    p.copy_(q)",
    ),
    (
        "[p.detach().clone() for p in model.parameters()]",
        "if rank == 0:\n    for q, p in zip(keeper.average, model.parameters()):\n"
        "        local(q).lerp_(local(p), 0.5)",
    ),
]
TABLES["end"] = [
    "pass",
    "pass",
    "pass",
    "mean = loss.detach().clone()\ndist.all_reduce(mean, dist.ReduceOp.AVG)\nmodel_of(model).seen.lerp_(mean, 0.1)",
    "model_of(model).seen.lerp_(loss.detach(), 0.1)",
    "model_of(model).acc.add_(x[0])",
    "local(next(model.parameters())).add_(0.001 * rank)",
    "local(model_of(model).head.bias).add_(0.001)",
    "dist.all_reduce(local(model_of(model).head.bias), dist.ReduceOp.AVG)",
    "dist.broadcast(local(model_of(model).head.bias), 0)",
    "for p in model.parameters():\n    local(p).clamp_(-1, 1)",
    "full = [p.full_tensor() if hasattr(p, 'full_tensor') else p for p in model.parameters()]\n"
    "model_of(model).seen.copy_(sum(each.float().sum() for each in full))",
    "for values in optimizer.state.values():\n    for value in values.values():\n"
    "        if torch.is_tensor(value):\n            local(value).mul_(1 + 0.001 * rank)",
]
OPTIMIZERS = [
    "SGD(params, lr=0.1)",
    "SGD(params, lr=0.1, momentum=0.9, nesterov=True)",
    "SGD(params, lr=0.1, momentum=0.9, foreach=True)",
    "SGD(params, lr=0.1, momentum=0.9, weight_decay=0.01, fused=True)",
    "AdamW(params, lr=0.01)",
    "AdamW(params, lr=0.01, foreach=True)",
    "AdamW(params, lr=0.01, fused=True)",
    "AdamW(params, lr=torch.tensor(0.01))",
    "Adam(params, lr=0.01, amsgrad=True)",
    "Adam(params, lr=0.01, fused=True, weight_decay=0.1)",
    "RMSprop(params, lr=0.01, momentum=0.5, centered=True)",
    "Adagrad(params, lr=0.01)",
    "Adadelta(params, lr=0.1)",
    "NAdam(params, lr=0.01)",
    "SGD(params, lr=0.1 * (1 + rank))",
    "AdamW([{'params': params[:2], 'lr': 0.1}, {'params': params[2:]}], lr=0.01 + 0.01 * (rank % 2))",
]
PARTS = {
    **TABLES,
    "passes": TABLES["passes"] + SHARD_PASSES + WRAPPED_PASSES,
    "reduce": TABLES["reduce"] + BY_HAND,
    "scaler": SCALERS,
    "update": STEPS,
    "scheduler": SCHEDULERS,
    "scheduled": SCHEDULED,
    "average": [made for made, _ in AVERAGES],
    "averaged": [line for _, line in AVERAGES],
    "optimizer": OPTIMIZERS,
}
"""All rows by part."""

TWO_AXES = ("hybrid", "shards of tensor")
"""Forms of a mesh of two axes, which have four ranks."""

RARE = {
    *FORMS["hybrid"][4:6],
    SHARD_PASSES[2],
    *WRAPPED_PASSES[1:],
    SCALED[4],
    *SCHEDULED[2:],
}
"""Rows that torch does not run twice, or that popsr refuses for a good reason: few programs have one."""

OF_SEVERAL_MESHES = ("tensor", "shards of tensor", "hybrid")
"""Forms whose parameters may be of several meshes, or of one and of none: torch clips each of them alone."""

OF_PLAIN_TENSORS = {OPTIMIZERS[3], "clip_grad_value_(params, 0.01)"}
"""Rows that torch has for plain tensors alone, or for most DTensors."""

PLACES = ["model", "optimizer", "global"]
