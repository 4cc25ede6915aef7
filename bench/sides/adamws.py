"""AdamW of several packages for bf16 weights, and torch's own for fp32, all with the same hyperparameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch

OPTIONS: dict[str, Any] = {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 1e-2}  # torch's defaults
Params = Iterable[torch.nn.Parameter]


@dataclass(frozen=True)
class Variant:
    """A dtype of weights, and an optimiser of weights, a learning rate and a seed."""

    make: Callable[[Params, float, int], torch.optim.Optimizer]
    dtype: torch.dtype = torch.bfloat16
    needs: str | None = None
    """Package beside torch and popsr."""

    def is_here(self) -> bool:
        """True if its package is installed."""
        return self.needs is None or find_spec(self.needs) is not None


class NearestAdamW(torch.optim.Optimizer):
    """AdamW with moments and arithmetic in fp32, whose new weights are rounded to nearest."""

    def __init__(self, params: Params, lr: float) -> None:
        super().__init__(params, {"lr": lr, **OPTIONS})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """One step on every parameter that has a gradient."""
        for group in self.param_groups:
            (beta1, beta2), lr = group["betas"], group["lr"]
            for p in group["params"]:
                state, grad, wide = self.state[p], p.grad.float(), p.float()
                if not state:
                    state.update(step=0, exp_avg=torch.zeros_like(wide), exp_avg_sq=torch.zeros_like(wide))
                state["step"] += 1
                state["exp_avg"].lerp_(grad, 1 - beta1)
                state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
                corrected = (state["exp_avg_sq"] / (1 - beta2 ** state["step"])).sqrt() + group["eps"]
                update = state["exp_avg"] / (1 - beta1 ** state["step"]) / corrected
                p.copy_(wide * (1 - lr * group["weight_decay"]) - lr * update)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As in torch, which would cast the moments to the dtype of the weights."""
        super().load_state_dict(state_dict)
        own = [p for group in self.param_groups for p in group["params"]]
        for i, saved in state_dict["state"].items():
            self.state[own[i]] = {k: v.clone() if torch.is_tensor(v) else v for k, v in saved.items()}


def _torch(params: Params, lr: float, seed: int) -> Any:
    return torch.optim.AdamW(params, lr=lr, **OPTIONS)


def _fused(params: Params, lr: float, seed: int) -> Any:
    return torch.optim.AdamW(params, lr=lr, fused=True, **OPTIONS)


def _foreach(params: Params, lr: float, seed: int) -> Any:
    return torch.optim.AdamW(params, lr=lr, foreach=True, **OPTIONS)


def _nearest(params: Params, lr: float, seed: int) -> Any:
    return NearestAdamW(params, lr)


def _popsr(params: Params, lr: float, seed: int) -> Any:
    import popsr

    return popsr.sr.torch.AdamW(params, lr=lr, seed=seed, **OPTIONS)


def _popsr_narrow(params: Params, lr: float, seed: int) -> Any:
    import popsr

    return popsr.sr.torch.AdamW(params, lr=lr, seed=seed, moments=torch.bfloat16, **OPTIONS)


def _optimi(params: Params, lr: float, seed: int) -> Any:
    import optimi

    return optimi.AdamW(params, lr=lr, kahan_sum=True, **OPTIONS)


def _torchao(params: Params, lr: float, seed: int) -> Any:
    from torchao.optim import _AdamW  # torchao's only AdamW whose moments are not quantised

    return _AdamW(params, lr=lr, bf16_stochastic_round=True, **OPTIONS)


POPSR = "popsr, stochastic"
TRAINED: dict[str, Variant] = {
    "fp32, torch": Variant(_torch, torch.float32),
    "to nearest, torch": Variant(_torch),
    "to nearest, fp32 moments": Variant(_nearest),
    POPSR: Variant(_popsr),
    "popsr, bf16 moments": Variant(_popsr_narrow),
    "Kahan, optimi": Variant(_optimi, needs="optimi"),
    "stochastic, torchao": Variant(_torchao, needs="torchao"),
}
TIMED: dict[str, Variant] = {
    POPSR: Variant(_popsr),
    "popsr, bf16 moments": Variant(_popsr_narrow),
    "to nearest, torch fused": Variant(_fused),
    "to nearest, torch foreach": Variant(_foreach),
    "fp32, torch fused": Variant(_fused, torch.float32),
    "Kahan, optimi": Variant(_optimi, needs="optimi"),
    "stochastic, torchao": Variant(_torchao, needs="torchao"),
}


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate, which torchao holds in a tensor."""
    for group in optimizer.param_groups:
        if torch.is_tensor(group["lr"]):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


def held(optimizer: torch.optim.Optimizer) -> int:
    """Bytes of the weights and of the optimiser's states of their size."""
    weights = [p for group in optimizer.param_groups for p in group["params"]]
    states = [each for p in weights for each in optimizer.state[p].values() if torch.is_tensor(each)]
    return sum(each.numel() * each.element_size() for each in (*weights, *states) if each.dim())
