"""``SyncBatchNorm`` in terms of collectives: torch's own kernels are of devices that a trace does not need."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["synchronised_norms"]


@contextlib.contextmanager
def synchronised_norms() -> Iterator[None]:
    """Let ``SyncBatchNorm`` compute its statistics by sums over its process group."""
    import torch

    module: Any = torch.nn.SyncBatchNorm
    kept = module.forward
    total = _sum()
    module.forward = lambda self, x: _forward(self, x, total)
    try:
        yield
    finally:
        module.forward = kept


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
    group: Any = norm.process_group or dist.group.WORLD
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
