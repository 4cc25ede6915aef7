"""Stochastic rounding of NumPy, ml_dtypes, torch and jax arrays: exact, seeded, at memory speed, for every float.

``key = Key(seed).fold_in("layer3.w").at(step)`` says which random numbers are drawn; there is no hidden state. Element
i of a result draws number i of its key, whatever the operation, format, layout or number of threads, so a decision can
be checked from outside with ``uniform_bits`` and ``bracket``. ``popsr.sr.torch`` holds optimisers and
operations for compiled graphs, ``popsr.sr.jax`` operations for ``jit``, and ``popsr.sr.optax`` roundings of optimisers.
"""

from typing import TYPE_CHECKING

from popsr._support.lazy import lazy_attributes, names_only
from popsr._support.text.entry_points import public
from popsr._support.text.suggestions import unknown_attribute
from popsr.sr._adamw import adamw_
from popsr.sr._bits import uniform_bits
from popsr.sr._blocks.blocks import Blocks
from popsr.sr._blocks.cast import cast_blocks
from popsr.sr._bracket import bracket
from popsr.sr._call import Key, _key  # noqa: F401 - pickles name _key
from popsr.sr._cast import cast
from popsr.sr._products import addcdiv, addcdiv_, addcmul, addcmul_, fma, fma_, mul, mul_
from popsr.sr._sum import sum
from popsr.sr._sums import add, add_, axpy, axpy_, lerp, lerp_, sub, sub_
from popsr.sr._types import Mode as Mode
from popsr.sr._types import Overflow as Overflow
from popsr.sr._watch import watch_keys

__all__ = [
    "Blocks",
    "Key",
    "adamw_",
    "add",
    "add_",
    "addcdiv",
    "addcdiv_",
    "addcmul",
    "addcmul_",
    "axpy",
    "axpy_",
    "bracket",
    "cast",
    "cast_blocks",
    "fma",
    "fma_",
    "lerp",
    "lerp_",
    "mul",
    "mul_",
    "sub",
    "sub_",
    "sum",
    "uniform_bits",
    "watch_keys",
]

if TYPE_CHECKING:
    from popsr.sr import jax as jax
    from popsr.sr import optax as optax
    from popsr.sr import torch as torch
else:
    __getattr__ = public(
        lazy_attributes(__name__, ("jax", "optax", "torch"), {}, unknown_attribute(__name__, __all__))
    )

__dir__ = names_only(__all__)
