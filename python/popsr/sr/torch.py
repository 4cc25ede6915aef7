"""Optimisers for torch whose weights may be bfloat16, or float8: every update is rounded stochastically."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from typing import Any

import torch

from popsr._lazy import names_only
from popsr._text.entry_points import add_entry_points
from popsr.sr._adamw import adamw_
from popsr.sr._call import Key

__all__ = ["AdamW"]

_MOMENTS = ("exp_avg", "exp_avg_sq")


class AdamW(torch.optim.Optimizer):  # type: ignore[misc, unused-ignore]  # Any where torch is missing
    """``torch.optim.AdamW`` for weights of any format on the CPU, without a second copy of them in fp32.

    Args:
        params: as in torch.
        lr: learning rate.
        betas: decay of the moments.
        eps: added to the root.
        weight_decay: decoupled decay.
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
        seed: int | None = None,
        moments: torch.dtype = torch.float32,
    ) -> None:
        seed = secrets.randbits(64) if seed is None else seed
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "seed": seed}
        super().__init__(params, defaults)
        self.moments = moments

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step on every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        index = 0
        for group in self.param_groups:
            options = {name: group[name] for name in ("lr", "betas", "eps", "weight_decay")}
            for p in group["params"]:
                key, index = Key(group["seed"]).fold_in(index), index + 1
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    for name in _MOMENTS:
                        state[name] = torch.zeros_like(p, dtype=self.moments, requires_grad=False)
                state["step"] += 1
                adamw_(p, p.grad, *(state[name] for name in _MOMENTS), key=key, step=state["step"], **options)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As in torch, which would also cast the moments to the dtype of the weights."""
        super().load_state_dict(state_dict)
        saved = [i for group in state_dict["param_groups"] for i in group["params"]]
        own = [p for group in self.param_groups for p in group["params"]]
        for i, p in zip(saved, own, strict=True):
            for name in _MOMENTS if i in state_dict["state"] else ():
                self.state[p][name] = state_dict["state"][i][name].clone()


__dir__ = names_only(__all__)
add_entry_points(__name__)
