"""Optimisers for torch whose weights may be bfloat16, or float8, and operations that ``torch.compile`` keeps.

Every update is rounded stochastically. The operations have gradients and work under ``vmap``; torch itself refuses
``torch.func.grad`` of custom operators.
"""

from __future__ import annotations

try:
    import torch  # noqa: F401 (without it, the error below)
except ImportError as error:
    from popsr._support.host.frameworks import not_installed

    raise not_installed("popsr.sr.torch", "torch") from error

from popsr._support.lazy import names_only
from popsr.sr._torch.adam import Adam, AdamW
from popsr.sr._torch.muon import Muon
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

__all__ = [
    "SGD",
    "Adafactor",
    "Adam",
    "AdamW",
    "Lion",
    "Muon",
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

__dir__ = names_only(__all__)
