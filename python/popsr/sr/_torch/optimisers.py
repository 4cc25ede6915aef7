"""Optimisers for torch beside AdamW: fp32 arithmetic on any format of weights, and one rounding of each new weight."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, ClassVar

import torch

from popsr import _core
from popsr._support.host.arguments import is_a
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError
from popsr.sr._call import Key
from popsr.sr._torch.base import Optimiser, check_range, in_float32, read_betas, read_ways, widened
from popsr.sr._torch.roundings import add_update
from popsr.sr._torch.steps import Weight

__all__ = ["SGD", "Adafactor", "Lion"]

_AXES = {"row_var": -1, "col_var": -2}
"""Axes of a matrix whose means are the second moments of a name."""


@public
class SGD(Optimiser):
    """``torch.optim.SGD`` for weights of any format.

    The new weight ``w - lr * d`` is rounded once; ``d``, the gradient with decay and momentum, is in fp32.

    Args:
        params: as in torch.
        lr: learning rate.
        momentum: factor of the momentum.
        dampening: of the gradient that enters the momentum, except the first.
        weight_decay: added to the gradient, as L2.
        nesterov: looks ahead.
        maximize: ascends.
        foreach: as in :class:`AdamW`.
        differentiable: False alone, as there.
        fused: without effect, as there.
        seed: of the rounding, as in :class:`AdamW`.
        moments: dtype of the momentum; a narrow one is rounded stochastically.
    Raises:
        TypeError, ValueError: a number is out of range; or of :func:`popsr.sr.add_`, at the first step.
    """

    _of_torch: ClassVar = {"momentum_buffer": "momentum"}

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        *,
        nesterov: bool = False,
        maximize: bool = False,
        foreach: bool | None = True,
        differentiable: bool = False,
        fused: bool | None = None,
        seed: int | None = None,
        moments: torch.dtype = torch.float32,
    ) -> None:
        given = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay}
        for name, value in given.items():
            check_range("SGD", name, value)
        if nesterov and (momentum == 0 or dampening != 0):
            raise AttributeValueError(
                f"SGD: nesterov does not fit, got momentum {momentum} and dampening {dampening}, "
                "expected some momentum and no dampening"
            )
        read_ways("SGD", differentiable, fused=fused)
        super().__init__(
            params,
            {
                **given,
                "nesterov": nesterov,
                "maximize": maximize,
                "foreach": foreach,
            },
            seed,
            moments,
        )

    def _names(self, group: dict[str, Any], p: Any) -> tuple[str, ...]:
        del p
        return ("begun", "momentum") if group["momentum"] else ()

    def _first(self, name: str, p: Any, state: dict[str, Any]) -> Any:
        return torch.tensor("momentum" in state) if name == "begun" else super()._first(name, p, state)

    def _step_one(self, weight: Weight, step: int, group: dict[str, Any], key: Key) -> None:
        _, p, grad, state, offset = weight
        momentum, direction = group["momentum"], grad
        if group["weight_decay"]:
            direction = widened(grad) + group["weight_decay"] * widened(p)
        if momentum:
            wide = widened(direction)
            if state["begun"]:
                kept = momentum * widened(state["momentum"]) + (1 - group["dampening"]) * wide
            else:
                kept = wide.clone()
            state["begun"].fill_(True)
            self._keep(weight, "momentum", kept, step, key)
            direction = wide + momentum * kept if group["nesterov"] else kept
        add_update(type(self).__name__, p, direction, -float(group["lr"]), key.at(step), offset)

    def _step_all(self, weights: list[Weight], group: dict[str, Any]) -> bool:
        lr, momentum = float(group["lr"]), float(group["momentum"])
        scalars = lr, momentum, float(group["dampening"]), float(group["weight_decay"])
        options = group["nesterov"], group["maximize"], 0
        if lr == 1:  # a difference, by another kernel
            return False
        return self._step_rows(
            weights,
            ("momentum",) if momentum else (),
            in_float32,
            lambda rows: _core.sr.sgd_step(group["seed"], rows, scalars, *options),
        )


@public
class Lion(Optimiser):
    """Lion for weights of any format: a step of one size, in the direction of a sign.

    ``w <- SR(w - lr * (sign(b1 * m + (1 - b1) * g) + weight_decay * w))``, then ``m <- b2 * m + (1 - b2) * g``.

    Args:
        params: as in torch.
        lr: learning rate.
        betas: of the direction, and of the momentum.
        weight_decay: decoupled decay.
        maximize: ascends.
        foreach: as in :class:`AdamW`.
        seed: of the rounding, as in :class:`AdamW`.
        moments: dtype of the momentum; a narrow one is rounded stochastically.
    Raises:
        TypeError, ValueError: a number is out of range; or of :func:`popsr.sr.add_`, at the first step.
    Source:
        Chen et al., Symbolic Discovery of Optimization Algorithms, 2023, arXiv:2302.06675.
    """

    _kept: ClassVar = ("exp_avg",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        foreach: bool | None = True,
        seed: int | None = None,
        moments: torch.dtype = torch.float32,
    ) -> None:
        check_range("Lion", "lr", lr)
        check_range("Lion", "weight_decay", weight_decay)
        read_betas("Lion", betas)
        options = {
            "lr": lr,
            "betas": betas,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach,
        }
        super().__init__(params, options, seed, moments)

    def _step_one(self, weight: Weight, step: int, group: dict[str, Any], key: Key) -> None:
        _, p, grad, state, offset = weight
        beta1, beta2 = group["betas"]
        wide, kept = widened(grad), widened(state["exp_avg"])
        direction = (beta1 * kept + (1 - beta1) * wide).sign_()
        if group["weight_decay"]:
            direction = direction + group["weight_decay"] * widened(p)
        self._keep(weight, "exp_avg", beta2 * kept + (1 - beta2) * wide, step, key)
        add_update(type(self).__name__, p, direction, -float(group["lr"]), key.at(step), offset)

    def _step_all(self, weights: list[Weight], group: dict[str, Any]) -> bool:
        lr, (beta1, beta2) = float(group["lr"]), map(float, group["betas"])
        scalars = lr, beta1, beta2, float(group["weight_decay"])
        if lr == 1:  # a difference, by another kernel
            return False
        return self._step_rows(
            weights,
            ("exp_avg",),
            in_float32,
            lambda rows: _core.sr.lion_step(group["seed"], rows, scalars, group["maximize"], 0),
        )


@public
class Adafactor(Optimiser):
    """``torch.optim.Adafactor`` for weights of any format: second moments of rows and columns, in fp32.

    DTensors in parts are gathered, one after the other: every rank of a mesh computes the step and keeps its part.

    Args:
        params: as in torch.
        lr: upper limit of the relative step.
        beta2_decay: exponent of the decay of the second moments.
        eps: smallest root of a second moment (default: the spacing of fp32 at 1) and smallest scale of a
            parameter.
        d: threshold of the clipping of updates.
        weight_decay: decoupled decay.
        foreach: without effect: weights are stepped one after the other.
        maximize: ascends.
        seed: of the rounding, as in :class:`AdamW`.
    Raises:
        TypeError, ValueError: a number is out of range; or of :func:`popsr.sr.add_`, at the first step.
    Source:
        Shazeer and Stern, Adafactor: Adaptive Learning Rates with Sublinear Memory Cost, 2018, arXiv:1804.04235.
    """

    _is_elementwise = False
    _of_torch: ClassVar = {"row_var": "row_var", "col_var": "col_var", "variance": "variance"}

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        seed: int | None = None,
    ) -> None:
        if not is_a(eps, (tuple, list)) or len(eps) != 2:
            raise ArgumentTypeError(f"Adafactor: eps is not a pair of numbers, got {shown(eps)}")
        numbers = {
            "lr": lr,
            "weight_decay": weight_decay,
            "-beta2_decay": -beta2_decay,
            "eps[1]": eps[1],
            "d": d,
        }
        for name, value in numbers.items():
            check_range("Adafactor", name, value)
        read_ways("Adafactor", None, foreach=foreach)
        options = {"lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay}
        super().__init__(params, {**options, "maximize": maximize}, seed, torch.float32)

    def _names(self, group: dict[str, Any], p: Any) -> tuple[str, ...]:
        del group
        return ("variance",) if p.dim() < 2 else tuple(_AXES)

    def _first(self, name: str, p: Any, state: dict[str, Any]) -> Any:
        del state
        zeros = torch.zeros_like(widened(p), requires_grad=False)
        return zeros if name == "variance" else zeros.sum(_AXES[name], keepdim=True)

    def _step_one(self, weight: Weight, step: int, group: dict[str, Any], key: Key) -> None:
        _, p, grad, state, offset = weight
        wide, w = widened(grad), widened(p)
        lr, smallest = float(group["lr"]), group["eps"][0]
        smallest = torch.finfo(w.dtype).eps if smallest is None else smallest
        estimate = self._second_moment(wide, state, step ** group["beta2_decay"], smallest)
        update = estimate.clamp_(min=smallest * smallest).rsqrt_().mul_(wide)
        scale = max(group["eps"][1], _root_mean_square(w)) * min(lr, step**-0.5)
        update.mul_(scale / max(1.0, _root_mean_square(update) / group["d"]))
        if group["weight_decay"]:
            update.add_(w, alpha=lr * group["weight_decay"])
        add_update(type(self).__name__, p, update, -1.0, key.at(step), offset)

    @staticmethod
    def _second_moment(grad: Any, state: dict[str, Any], weight: float, smallest: float) -> Any:
        """An estimate, which may be overwritten."""
        square = grad * grad
        if grad.dim() < 2:
            return state["variance"].lerp_(square, weight).clone()
        for name, axis in _AXES.items():
            state[name].lerp_(square.mean(axis, keepdim=True), weight)
        rows = state["row_var"]
        return (rows @ state["col_var"]).div_(rows.mean(-2, keepdim=True).clamp_(min=smallest))


def _root_mean_square(x: Any) -> float:
    size: int = max(1, x.numel())
    return float(x.norm(2)) / math.sqrt(size)
