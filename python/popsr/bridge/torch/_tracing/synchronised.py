"""``SyncBatchNorm`` in terms of collectives: torch's own kernels are of devices that a trace does not need."""

from __future__ import annotations

import contextlib
from typing import Any

from popsr.bridge._step.replaced import replaced

__all__ = ["has_local_norms", "local_norms_synchronised", "synchronised_norms"]


def synchronised_norms() -> contextlib.AbstractContextManager[None]:
    """Let ``SyncBatchNorm`` compute its statistics by sums over its process group."""
    import torch

    total = _sum()
    return replaced([(torch.nn.SyncBatchNorm, "forward", lambda self, x: _forward(self, x, total))])


def local_norms_synchronised() -> contextlib.AbstractContextManager[None]:
    """Let all other batch norms do as if they were converted to ``SyncBatchNorm``."""
    import torch.nn.modules.batchnorm as norms

    base: Any = norms._BatchNorm
    total = _sum()
    return replaced([(base, "forward", lambda self, x: _forward(self, x, total))])


def has_local_norms(model: Any) -> bool:
    """True for a model with batch norms that compute the statistics of their rank, as torch has written them."""
    import torch
    import torch.nn.modules.batchnorm as norms

    base: Any = norms._BatchNorm
    found = [each for each in model.modules() if isinstance(each, base)]
    local = [each for each in found if not isinstance(each, torch.nn.SyncBatchNorm)]
    return any(each.training for each in local) and all(type(each).forward is base.forward for each in local)


def _sum() -> Any:
    import torch
    import torch.distributed._functional_collectives as functional

    class Sum(torch.autograd.Function):
        """The sum over a process group; the gradient of all ranks' results is their sum, too."""

        @staticmethod
        def forward(ctx: Any, t: Any, group: Any) -> Any:
            ctx.group = group
            return functional.all_reduce(t.contiguous(), "sum", group)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return functional.all_reduce(grad.contiguous(), "sum", ctx.group), None

    return Sum.apply


def _forward(norm: Any, x: Any, total: Any) -> Any:
    """Over all ranks: the mean, then the mean of the squared differences from it."""
    import torch
    import torch.distributed as dist

    norm._check_input_dim(x)
    if not norm.training and norm.running_mean is not None:
        return torch.nn.functional.batch_norm(
            x, norm.running_mean, norm.running_var, norm.weight, norm.bias, False, 0.0, norm.eps
        )
    group: Any = getattr(norm, "process_group", None) or dist.group.WORLD
    axes = [axis for axis in range(x.dim()) if axis != 1]
    shape = [1, -1] + [1] * (x.dim() - 2)
    count = x.numel() // x.shape[1] * group.size()
    mean = total(x.sum(axes), group) / count
    difference = x - mean.view(shape)
    var = total((difference * difference).sum(axes), group) / count
    if norm.training and norm.track_running_stats:
        _count(norm, mean.detach(), var.detach() * (count / (count - 1)))
    made = difference * torch.rsqrt(var + norm.eps).view(shape)
    return made if norm.weight is None else made * norm.weight.view(shape) + norm.bias.view(shape)


def _count(norm: Any, mean: Any, var: Any) -> None:
    """Update the running statistics."""
    norm.num_batches_tracked.add_(1)
    share = norm.momentum if norm.momentum is not None else 1.0 / norm.num_batches_tracked
    norm.running_mean.mul_(1 - share).add_(mean * share)
    norm.running_var.mul_(1 - share).add_(var * share)
