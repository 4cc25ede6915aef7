"""Optimisers for torch whose weights may be bfloat16, or float8, and operations that ``torch.compile`` keeps.

Every update is rounded stochastically. The operations have gradients and work under ``vmap``; torch itself refuses
``torch.func.grad`` of custom operators.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

try:
    import torch
except ImportError as error:
    from popsr._support.host.frameworks import not_installed

    raise not_installed("popsr.sr.torch", "torch") from error

from popsr import _core
from popsr._support.lazy import names_only
from popsr._support.text.entry_points import public
from popsr.sr._adamw import adamw_, read_scalars
from popsr.sr._call import Key
from popsr.sr._torch.base import Optimiser
from popsr.sr._torch.ops import (
    add,
    addcdiv,
    addcmul,
    at,
    axpy,
    cast,
    fma,
    fold_in,
    key_tensor,
    lerp,
    mul,
    sub,
    sum,
)
from popsr.sr._torch.optimisers import SGD, Adafactor, Lion
from popsr.sr._torch.steps import Weight

__all__ = [
    "SGD",
    "Adafactor",
    "AdamW",
    "Lion",
    "add",
    "addcdiv",
    "addcmul",
    "at",
    "axpy",
    "cast",
    "fma",
    "fold_in",
    "key_tensor",
    "lerp",
    "mul",
    "sub",
    "sum",
]

_MOMENTS = ("exp_avg", "exp_avg_sq")


@public
class AdamW(Optimiser):
    """``torch.optim.AdamW`` for weights of any format on the CPU, without a second copy of them in fp32.

    Args:
        params: as in torch.
        lr: learning rate.
        betas: decay of the moments.
        eps: added to the root.
        weight_decay: decoupled decay.
        maximize: ascends.
        foreach: one call steps all weights of a group, where they are contiguous and share no memory; False: one
            call for each. The bits are the same.
        seed: of the rounding; the order of the parameters and the number of their step are part of each key. Default:
            one from the OS. Saved by ``state_dict``, so that a resumed run goes on with the same bits.
        moments: dtype of both moments.
    Raises:
        TypeError, ValueError: see :func:`popsr.sr.adamw_`, at the first step.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        maximize: bool = False,
        foreach: bool = True,
        seed: int | None = None,
        moments: torch.dtype = torch.float32,
    ) -> None:
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        options |= {"maximize": maximize, "foreach": foreach}
        super().__init__(params, options, seed, moments)

    def _step_one(self, p: Any, grad: Any, state: dict[str, Any], group: dict[str, Any], key: Key) -> None:
        for name in _MOMENTS:
            if name not in state:
                state[name] = self._zeros(p)
        options = {name: group[name] for name in ("betas", "eps", "weight_decay")}
        moments = (state[name] for name in _MOMENTS)
        adamw_(p, grad, *moments, key=key, step=state["step"], lr=float(group["lr"]), **options)

    def _step_all(self, weights: list[Weight], group: dict[str, Any]) -> bool:
        scalars = read_scalars("adamw_", *(group[name] for name in ("lr", "betas", "eps", "weight_decay")))
        ascends = group["maximize"]
        return self._step_rows(
            weights,
            _MOMENTS,
            lambda weight, _: not (ascends and weight.grad.dtype is torch.float64),
            lambda rows: _core.sr.adamw_step(group["seed"], rows, scalars, ascends, 0),
        )


__dir__ = names_only(__all__)
