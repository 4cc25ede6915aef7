"""Muon for torch, for matrices of any format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import torch

from popsr._support.host.arguments import is_a, read_bool, read_int
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError, ShapeError
from popsr.sr._call import Key
from popsr.sr._torch.base import Optimiser, check_range, widened
from popsr.sr._torch.roundings import add_update
from popsr.sr._torch.steps import Weight

__all__ = ["Muon"]

_RATES = ("original", "match_rms_adamw")


@public
class Muon(Optimiser):
    """``torch.optim.Muon`` for matrices of any format: the momentum, made nearly orthogonal.

    ``w <- SR(w - lr * (f * O + weight_decay * w))``, where O is the orthogonalised momentum, in fp32; torch's own makes
    the products of its iteration in bf16. Other parameters, as biases and embeddings, are for :class:`AdamW`.
    DTensors in parts are gathered, one after the other: every rank of a mesh computes the step and keeps its part.

    Args:
        params: matrices, as in torch.
        lr: learning rate.
        weight_decay: decoupled decay.
        momentum: decay of the momentum.
        nesterov: looks ahead.
        ns_coefficients: a, b and c of ``a X + (b X X' + c (X X')**2) X``, the step of the iteration.
        eps: smallest norm that a momentum is divided by.
        ns_steps: of the iteration.
        adjust_lr_fn: f of a matrix of m rows and n columns: ``sqrt(max(1, m / n))`` ("original", also None) or
            ``0.2 * sqrt(max(m, n))`` ("match_rms_adamw").
        maximize: ascends.
        seed: of the rounding, as in :class:`AdamW`.
        moments: dtype of the momentum; a narrow one is rounded stochastically.
    Raises:
        TypeError, ValueError: a number is out of range, or a parameter is not a matrix; or of
            :func:`popsr.sr.add_`, at the first step.
    Source:
        Jordan et al., Muon: An optimizer for hidden layers in neural networks, 2024; Liu et al., Muon is Scalable for
        LLM Training, 2025, arXiv:2502.16982 ("match_rms_adamw").
    """

    _is_elementwise = False
    _kept: ClassVar = ("momentum",)
    _of_torch: ClassVar = {"momentum_buffer": "momentum"}

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
        *,
        maximize: bool = False,
        seed: int | None = None,
        moments: torch.dtype = torch.float32,
    ) -> None:
        numbers = {"lr": lr, "weight_decay": weight_decay, "eps": eps}
        for name, value in numbers.items():
            check_range("Muon", name, value)
        check_range("Muon", "momentum", momentum, 1)
        read_bool("Muon: nesterov", nesterov)
        read_int("Muon: ns_steps", ns_steps, 0, 99)
        if not is_a(ns_coefficients, (tuple, list)) or len(ns_coefficients) != 3:
            raise ArgumentTypeError(
                f"Muon: ns_coefficients is not a tuple, got {shown(ns_coefficients)}, expected three numbers"
            )
        if adjust_lr_fn not in (None, *_RATES):
            raise AttributeValueError(
                f"Muon: adjust_lr_fn is unknown, got {shown(adjust_lr_fn)}, expected one of {', '.join(_RATES)}"
            )
        options: dict[str, Any] = {
            **numbers,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_steps": ns_steps,
        }
        options |= {"ns_coefficients": tuple(ns_coefficients), "adjust_lr_fn": adjust_lr_fn}
        super().__init__(params, {**options, "maximize": maximize}, seed, moments)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As in torch.

        Args:
            param_group: with matrices alone.
        Raises:
            ValueError: a parameter is not a matrix.
        """
        super().add_param_group(param_group)
        for p in self.param_groups[-1]["params"]:
            if p.dim() != 2:
                del self.param_groups[-1]
                raise ShapeError(
                    f"Muon: a parameter is not a matrix, got shape {tuple(p.shape)}, expected two dimensions: give "
                    "others to AdamW"
                )

    def _step_one(self, weight: Weight, step: int, group: dict[str, Any], key: Key) -> None:
        _, p, grad, state, offset = weight
        wide, momentum = widened(grad), group["momentum"]
        kept = momentum * widened(state["momentum"]) + (1 - momentum) * wide
        update = momentum * kept + (1 - momentum) * wide if group["nesterov"] else kept
        update = _nearly_orthogonal(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
        update.mul_(_factor(p.shape, group["adjust_lr_fn"]))
        if group["weight_decay"]:
            update.add_(widened(p), alpha=group["weight_decay"])
        self._keep(weight, "momentum", kept, step, key)
        add_update(type(self).__name__, p, update, -float(group["lr"]), key.at(step), offset)


def _factor(shape: Sequence[int], rate: str | None) -> float:
    """The factor of the learning rate; 0 rows or columns have no elements to step."""
    rows, columns = shape
    if rate == "match_rms_adamw":
        return float(0.2 * max(rows, columns) ** 0.5)
    return float(max(1, rows / max(1, columns)) ** 0.5)


def _nearly_orthogonal(x: Any, coefficients: tuple[float, float, float], steps: int, eps: float) -> Any:
    """The matrix with singular values near 1, by an iteration of Newton and Schulz; not of x's memory."""
    a, b, c = coefficients
    is_tall = x.shape[0] > x.shape[1]
    x = x.mT if is_tall else x
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        square = x @ x.mT
        x = a * x + (b * square + c * (square @ square)) @ x
    return x.mT.contiguous() if is_tall else x
