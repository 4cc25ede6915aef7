"""Optimisers with what stands around them: clipping, scalers, schedulers, averages of weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.distributed.tensor import DTensor, distribute_tensor  # noqa: E402
from torch.optim.optimizer import Optimizer as Updater  # noqa: E402

__all__ = ["OPTIMIZERS", "Optimizer"]


class Muon(Updater):
    """Momentum made orthogonal for matrices, as published; the sign of it for vectors."""

    def __init__(self, params: Any, lr: float = 0.02, momentum: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["momentum_buffer"] = torch.zeros_like(p)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                kept = self.state[p]["momentum_buffer"]
                kept.mul_(group["momentum"]).add_(p.grad)
                update = kept.full_tensor() if isinstance(kept, DTensor) else kept
                update = _orthogonal(update) if update.ndim == 2 else update.sign()
                if isinstance(p, DTensor):
                    update = distribute_tensor(update, p.device_mesh, p.placements, src_data_rank=None)
                p.add_(update, alpha=-group["lr"])


def _orthogonal(g: Any) -> Any:
    """Five steps of Newton and Schulz."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.T if g.shape[0] > g.shape[1] else g
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return x.T if g.shape[0] > g.shape[1] else x


@dataclass(frozen=True)
class Optimizer:
    """An optimiser as a loop uses it.

    Attributes:
        make: makes it, of parameters.
        clip: True if gradients are clipped by their norm.
        scaler: True if a ``GradScaler`` scales the loss.
        scheduler: makes a scheduler of the optimiser.
        average: True if an average of the weights is kept.
        together: True if it updates all parameters in one call.
    """

    make: Callable[[Any], Any]
    clip: bool = False
    scaler: bool = False
    scheduler: Callable[[Any], Any] | None = None
    average: bool = False
    together: bool = False

    @property
    def joint(self) -> bool:
        """True if one call takes all gradients, which must then be of one type of tensor."""
        return self.clip or self.scaler or self.together

    def made(self, model: Any) -> Any:
        """The optimiser of a model, with what stands around it as attributes of both."""
        optimizer = self.make(list(model.parameters()))
        if self.scaler:
            optimizer.scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        if self.scheduler:
            optimizer.scheduler = self.scheduler(optimizer)
        if self.average:
            model.average = {name: p.detach().clone() for name, p in model.named_parameters()}
        return optimizer

    def backward(self, optimizer: Any, loss: Any) -> None:
        """Backward pass of a loss."""
        (optimizer.scaler.scale(loss) if self.scaler else loss).backward()

    def update(self, model: Any, optimizer: Any) -> None:
        """Update of the parameters after the gradients are reduced."""
        if self.scaler:
            optimizer.scaler.unscale_(optimizer)
        if self.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        if self.scaler:
            optimizer.scaler.step(optimizer)
            optimizer.scaler.update()
        else:
            optimizer.step()
        if self.scheduler:
            optimizer.scheduler.step()
        if self.average:
            with torch.no_grad():
                for name, p in model.named_parameters():
                    model.average[name].lerp_(p, 0.1)


def _torch(name: str, **options: Any) -> Callable[[Any], Any]:
    return lambda params: getattr(torch.optim, name)(params, **options)


def _warm(optimizer: Any) -> Any:
    return torch.optim.lr_scheduler.LinearLR(optimizer, 0.5, total_iters=2)


_ADAMW = _torch("AdamW", lr=0.01)

OPTIMIZERS: dict[str, Optimizer] = {
    "SGD": Optimizer(_torch("SGD", lr=0.1, momentum=0.9)),
    "SGD `foreach`": Optimizer(_torch("SGD", lr=0.1, momentum=0.9, foreach=True), together=True),
    "AdamW": Optimizer(_ADAMW),
    "AdamW `foreach`": Optimizer(_torch("AdamW", lr=0.01, foreach=True), together=True),
    "AdamW `fused`": Optimizer(_torch("AdamW", lr=0.01, fused=True), together=True),
    "Adam": Optimizer(_torch("Adam", lr=0.01)),
    "RMSprop": Optimizer(_torch("RMSprop", lr=0.01)),
    "Adagrad": Optimizer(_torch("Adagrad", lr=0.01)),
    "Muon": Optimizer(Muon),
    "AdamW, clip": Optimizer(_ADAMW, clip=True),
    "AdamW, `GradScaler`": Optimizer(_ADAMW, scaler=True),
    "AdamW, scheduler": Optimizer(_ADAMW, scheduler=_warm),
    "AdamW, average": Optimizer(_ADAMW, average=True),
    "SGD, all of these": Optimizer(
        _torch("SGD", lr=0.1, momentum=0.9), clip=True, scaler=True, scheduler=_warm, average=True
    ),
}
"""Optimisers by name."""
