"""Parts that several steps of PyTorch share: weights cut over a mesh, collectives with a backward pass of their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn import functional

__all__ = [
    "CopyTo", "Cut", "Gather", "GatherAlone", "ScatterSum", "SumBoth", "SumFrom", "TorchProgram", "Weights",
    "alone", "attend", "momentum", "no_optimizer", "part_of", "sgd", "size_of", "total",
]  # fmt: skip

Cut = tuple[int, str]
"""Dimension that is cut, and the axis of the mesh."""


@dataclass(frozen=True, eq=False)
class TorchProgram:
    """A step of PyTorch with global weights and batch.

    Attributes:
        step: of the model, its optimiser and a rank's batch; returns the loss of all ranks.
        make: makes a rank's model; called as each rank, and once as the only one.
        optimizer: makes the optimiser of a model.
        batch: global arrays.
        mesh: sizes by axis; all are 1 for one device.
        cuts: how weights, and the batch by position, are cut; whole if they are missing.
        reference: the step for one device; None: the step itself.
        found_as: names of the step and of its bug in the table, by which processes find it; others run in threads.
        equal: names of data that all ranks share.
    """

    step: Callable[..., Any]
    make: Callable[[], Any]
    optimizer: Callable[[Any], Any]
    batch: tuple[Any, ...]
    mesh: Mapping[str, int]
    cuts: Mapping[str | int, Cut]
    reference: Any = None
    found_as: tuple[str, str] | None = None
    equal: tuple[str, ...] = ()


def sgd(model: nn.Module) -> Any:
    """Gradient descent over all parameters that are trained."""
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)


def momentum(m: Any) -> Any:
    """Gradient descent with momentum."""
    return torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)


def alone(loss_of: Any = functional.mse_loss, before: Callable[[Any], object] = lambda m: None) -> Any:
    """The step as a user writes it for one device: the whole model on the whole batch."""

    def step(m: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(m(x), y)
        loss.backward()
        before(m)
        optimizer.step()
        return loss

    return step


def no_optimizer(_model: nn.Module) -> None:
    """Makes nothing: the step updates weights itself."""


class Weights(nn.Module):
    """A rank's parts of weights under their names, and the mesh."""

    def __init__(
        self, mesh: Mapping[str, int], values: Mapping[str, Any], cuts: Mapping[Any, Cut], fixed: Any = ()
    ) -> None:
        """Cut the weights; those in ``fixed`` are buffers."""
        super().__init__()
        sizes = mesh if dist.get_world_size() > 1 else dict.fromkeys(mesh, 1)
        self.mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        for name, value in values.items():
            part = part_of(torch.from_numpy(np.asarray(value)), cuts.get(name), self.mesh).clone()
            if name in fixed:
                self.register_buffer(name, part)
            else:
                self.register_parameter(name, nn.Parameter(part))

    def group(self, axis: str) -> Any:
        """Ranks along an axis."""
        return self.mesh.get_group(axis)

    def rank(self, axis: str) -> int:
        """Place along an axis."""
        place: int = self.mesh.get_local_rank(axis)
        return place

    def size(self, axis: str) -> int:
        """Ranks along an axis."""
        return size_of(self.group(axis))


def size_of(group: Any) -> int:
    """Ranks of a group."""
    return dist.get_world_size(group)


def part_of(t: Any, cut: Cut | None, mesh: Any) -> Any:
    """A rank's part of a global tensor."""
    return t if cut is None else t.chunk(mesh[cut[1]].size(), cut[0])[mesh.get_local_rank(cut[1])]


def total(t: Any, group: Any, op: Any = dist.ReduceOp.SUM) -> Any:
    """A new tensor, summed over a group, outside of autograd."""
    t = t.detach().clone()
    dist.all_reduce(t, op, group=group)
    return t


def joined(t: Any, group: Any, dim: int) -> Any:
    """Parts of all ranks of a group."""
    parts = [torch.empty_like(t) for _ in range(size_of(group))]
    dist.all_gather(parts, t.contiguous(), group=group)
    return torch.cat(parts, dim)


def own(t: Any, group: Any, dim: int) -> Any:
    """A rank's own part."""
    return t.chunk(size_of(group), dim)[dist.get_rank(group)]


class CopyTo(torch.autograd.Function):
    """The input of a column-parallel layer: itself forward, a sum backward (Megatron's f)."""

    @staticmethod
    def forward(ctx: Any, x: Any, group: Any) -> Any:
        ctx.group = group
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return total(g, ctx.group), None


class SumFrom(torch.autograd.Function):
    """The output of a row-parallel layer: a sum forward, the gradient itself backward (Megatron's g)."""

    @staticmethod
    def forward(ctx: Any, x: Any, group: Any) -> Any:
        return total(x, group)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g.clone(), None


class SumBoth(torch.autograd.Function):
    """A sum forward and a sum backward, as ``torch.distributed.nn.functional.all_reduce``."""

    @staticmethod
    def forward(ctx: Any, x: Any, group: Any) -> Any:
        ctx.group = group
        return total(x, group)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return total(g, ctx.group), None


class Gather(torch.autograd.Function):
    """Parts of all ranks forward, the own part of the sum of gradients backward."""

    @staticmethod
    def forward(ctx: Any, x: Any, group: Any, dim: int) -> Any:
        ctx.group, ctx.dim = group, dim
        return joined(x.detach(), group, dim)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return own(total(g, ctx.group), ctx.group, ctx.dim).clone(), None, None


class GatherAlone(Gather):
    """Parts of all ranks forward, the own part of a rank's own gradients backward."""

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return own(g, ctx.group, ctx.dim).clone(), None, None


class ScatterSum(torch.autograd.Function):
    """The own part of a sum forward, gradients of all parts backward."""

    @staticmethod
    def forward(ctx: Any, x: Any, group: Any, dim: int) -> Any:
        ctx.group, ctx.dim = group, dim
        return own(total(x, group), group, dim).clone()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return joined(g, ctx.group, ctx.dim), None, None


def attend(q: Any, k: Any, v: Any, scale: float, first: int = 0, first_key: int = 0) -> Any:
    """Causal attention of each head, (batch, head, time, part); rows and columns begin at these positions."""
    rows = first + torch.arange(q.shape[2])
    columns = first_key + torch.arange(k.shape[2])
    scores = (q @ k.transpose(-1, -2)) * scale
    scores = scores.masked_fill(rows[:, None] < columns[None, :], -math.inf)
    return torch.softmax(scores, -1) @ v
