"""Adam and AdamW for torch, for weights of any format."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, ClassVar

import torch

from popsr import _core
from popsr._support.host.arguments import read_bool
from popsr._support.text.entry_points import public
from popsr.sr._adamw import adamw_, read_scalars
from popsr.sr._call import Key
from popsr.sr._torch.base import Optimiser, read_ways, widened
from popsr.sr._torch.roundings import add_update, is_portable, rounded
from popsr.sr._torch.states import Decay
from popsr.sr._torch.steps import Weight

__all__ = ["Adam", "AdamW"]

_MOMENTS = ("exp_avg", "exp_avg_sq")


@public
class AdamW(Optimiser):
    """``torch.optim.AdamW`` for weights of any format, without a second copy of them in fp32.

    On other devices than the CPU torch's operations compute what the core does here, and the rounding has its bits.

    DTensors in parts have the bits of one process, given the same gradients, for any mesh.

    Args:
        params: as in torch.
        lr: learning rate, a number or a tensor with one.
        betas: decay of the moments.
        eps: added to the root.
        weight_decay: decoupled decay.
        amsgrad: divides by the largest second moment so far, in torch's arithmetic, a call for each weight.
        maximize: ascends.
        foreach: one call steps all weights of a group, where they are contiguous and share no memory; False: one
            call for each. The bits are the same.
        capturable: without effect: the number of steps is a tensor, and ``torch.compile`` makes one graph of a step.
        differentiable: False alone, as a rounded weight has no derivative.
        fused: without effect: a step is one call of the core anyway.
        seed: of the rounding; the order of the parameters and the number of their step are part of each key. Default:
            one from the OS; needed in a job of several ranks, the same on all, else equal weights would be rounded
            apart. Saved by ``state_dict``, so that a resumed run goes on with the same bits.
        moments: dtype of both moments.
    Raises:
        TypeError: there is no seed in a job of several ranks.
        TypeError, ValueError: see :func:`popsr.sr.adamw_`, at the first step.
    """

    _of_torch: ClassVar = {
        "exp_avg": "exp_avg",
        "exp_avg_sq": "exp_avg_sq",
        "max_exp_avg_sq": "max_exp_avg_sq",
    }
    _decay: ClassVar[Decay | None] = "decoupled"

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        amsgrad: bool = False,
        maximize: bool = False,
        foreach: bool | None = True,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        seed: int | None = None,
        moments: torch.dtype = torch.float32,
    ) -> None:
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        options |= {"amsgrad": read_bool(f"{type(self).__name__}: amsgrad", amsgrad)}
        options |= {"maximize": maximize, "foreach": foreach}
        read_ways(type(self).__name__, differentiable, capturable=capturable, fused=fused)
        super().__init__(params, options, seed, moments)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("amsgrad", False)  # saved before there was this option

    def _names(self, group: dict[str, Any], p: Any) -> tuple[str, ...]:
        del p
        return (*_MOMENTS, "max_exp_avg_sq") if group["amsgrad"] else _MOMENTS

    def _step_one(self, weight: Weight, step: int, group: dict[str, Any], key: Key) -> None:
        _, p, grad, state, offset = weight
        decay = float(group["weight_decay"])
        if decay and self._decay == "L2":
            grad, decay = widened(grad) + decay * widened(p), 0.0
        if group["amsgrad"]:
            self._step_largest(weight._replace(grad=widened(grad)), step, group, decay, key)
            return
        if is_portable(p):
            self._step_elsewhere(weight._replace(grad=grad), step, group, decay, key)
            return
        options = {name: group[name] for name in ("betas", "eps")}
        moments = (state[name] for name in _MOMENTS)
        adamw_(
            *(p, grad, *moments),
            key=key,
            step=step,
            lr=float(group["lr"]),
            weight_decay=decay,
            offset=offset,
            **options,
        )

    def _step_largest(self, weight: Weight, step: int, group: dict[str, Any], decay: float, key: Key) -> None:
        """A step by the largest second moment so far; the new moments are kept, each rounded under its name."""
        _, p, grad, state, offset = weight
        beta1, beta2 = group["betas"]
        first = beta1 * widened(state["exp_avg"]) + (1 - beta1) * grad
        second = beta2 * widened(state["exp_avg_sq"]) + (1 - beta2) * grad * grad
        largest = torch.maximum(widened(state["max_exp_avg_sq"]), second)
        update = first / (1 - beta1**step) / ((largest / (1 - beta2**step)).sqrt() + group["eps"])
        if decay:
            update = update + decay * widened(p)
        for name, value in (("exp_avg", first), ("exp_avg_sq", second), ("max_exp_avg_sq", largest)):
            self._keep(weight, name, value, step, key)
        add_update(type(self).__name__, p, update, -float(group["lr"]), key.at(step), offset)

    def _step_elsewhere(
        self, weight: Weight, step: int, group: dict[str, Any], decay: float, key: Key
    ) -> None:
        """A step on another device: torch's operations in the core's order, each rounded as there."""
        _, p, grad, state, offset = weight
        name, (beta1, beta2), lr = type(self).__name__, group["betas"], float(group["lr"])
        moments = [state[each] for each in _MOMENTS]
        is_double = torch.float64 in (each.dtype for each in (p, grad, *moments))
        wide = torch.float64 if is_double else torch.float32
        g, m, v = (each.to(wide) for each in (grad, *moments))
        m = m * beta1 + g * (1 - beta1)
        v = v * beta2 + (g * (1 - beta2)) * g
        root = v.sqrt() * (1 / math.sqrt(1 - beta2**step)) + group["eps"]
        update = p.to(wide) * (-lr * decay) + (m * (-lr / (1 - beta1**step))) / root
        now = key.at(step)
        add_update(name, p, update, None, now, offset)
        for number, (kept, new) in enumerate(zip(moments, (m, v), strict=True), 1):
            own = _core.sr.moment_key(now, number)
            kept.copy_(new if kept.dtype is wide else rounded(name, new, kept.dtype, own, offset))

    def _step_all(self, weights: list[Weight], group: dict[str, Any]) -> bool:
        scalars = read_scalars("adamw_", *(group[name] for name in ("lr", "betas", "eps", "weight_decay")))
        ascends = group["maximize"]
        if group["amsgrad"] or (scalars[-1] and self._decay == "L2"):
            return False
        return self._step_rows(
            weights,
            _MOMENTS,
            lambda weight, _: not (ascends and weight.grad.dtype is torch.float64),
            lambda rows: _core.sr.adamw_step(group["seed"], rows, scalars, ascends, 0),
        )


@public
class Adam(AdamW):
    """``torch.optim.Adam`` for weights of any format: weight decay is added to the gradient, as L2.

    Args:
        params: as in torch.
        lr: learning rate.
        betas: decay of the moments.
        eps: added to the root.
        weight_decay: factor of the weights that the gradient, in fp32, is given; with some, weights are stepped in a
            call for each.
        amsgrad: as in :class:`AdamW`.
        maximize: ascends.
        foreach: this, ``capturable``, ``differentiable`` and ``fused`` as in :class:`AdamW`.
        capturable: without effect.
        differentiable: False alone.
        fused: without effect.
        seed: of the rounding, as in :class:`AdamW`.
        moments: dtype of both moments.
    Raises:
        TypeError, ValueError: see :func:`popsr.sr.adamw_`, at the first step.
    Source:
        Kingma and Ba, Adam: A Method for Stochastic Optimization, 2014, arXiv:1412.6980.
    """

    _decay: ClassVar[Decay | None] = "L2"

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        amsgrad: bool = False,
        maximize: bool = False,
        foreach: bool | None = True,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        seed: int | None = None,
        moments: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad=amsgrad,
            maximize=maximize,
            foreach=foreach,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            seed=seed,
            moments=moments,
        )
