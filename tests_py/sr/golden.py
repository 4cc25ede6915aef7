"""A digest of many results of ``popsr.sr``; run as a program, it prints one. Equal digests: equal bits."""

from __future__ import annotations

import functools
import hashlib
import itertools
import sys
from typing import Any

import numpy as np

from popsr import StochasticAdder, sr
from tests_py.sr.cases import MODES, NAMES, OPERANDS, SCALARS, Array, bits_of, call, from_bits, operand_bits


@functools.cache
def operands(names: tuple[str, ...], seed: int) -> list[Any]:
    """Arrays of all pairs of specials and 301 random numbers twice."""
    columns = operand_bits(names, 301, np.random.default_rng(seed))
    return [from_bits(column, name) for column, name in zip(columns, names, strict=True)]


def results(num_threads: int | None = None) -> list[Array]:
    """Bits of every operation in every format, of a length that is not a multiple of a vector."""
    out = []
    for op, name in itertools.product(OPERANDS, NAMES):
        second = "float32" if op in ("cast", "lerp") else name
        names = (name, second, second)[: OPERANDS[op]] if op != "cast" else ("float64",)
        arrays = operands(names, 17)
        key = sr.Key(12345).fold_in(op).fold_in(name)
        for mode in MODES if op in ("add", "cast") else ("sr", "rn"):
            options: Any = {"key": key, "mode": mode, "num_threads": num_threads, "offset": 3}
            scalars: Any = (name,) if op == "cast" else SCALARS.get(op, ())
            got = call(op, arrays, scalars, **options)
            out.append(bits_of(got))
    for name in NAMES:
        x, y = operands((name, name), 18)
        for rng in ("value", "counter"):
            adder = StochasticAdder(name, seed=9, rng=rng)
            out += [bits_of(adder.add(x, y)), bits_of(adder.add_biased(x, y))]
        out.append(bits_of(sr.sum(x[:100].reshape(5, 20), key=sr.Key(4), axis=1, num_threads=num_threads)))
    out += [adamw(name, num_threads) for name in ("float64", "float32", "bfloat16", "float16")]
    return out


def adamw(name: str, num_threads: int | None = None) -> Array:
    """Bits of weights and moments after three steps."""
    rng = np.random.default_rng(3)
    moment = "float32" if name == "bfloat16" else name
    w, m, v = (np.zeros(1003).astype(from_bits(0, n).dtype) for n in (name, moment, moment))
    w[:] = rng.standard_normal(1003).astype(w.dtype)
    for step in range(1, 4):
        g = rng.standard_normal(1003).astype(w.dtype)
        sr.adamw_(w, g, m, v, key=sr.Key(1), step=step, lr=1e-2, num_threads=num_threads)
    return np.concatenate([bits_of(a).view(np.uint8) for a in (w, m, v)])


def digest(found: list[Array]) -> str:
    """One line."""
    return hashlib.sha256(b"".join(array.tobytes() for array in found)).hexdigest()


if __name__ == "__main__":
    sys.stdout.write(digest(results()))
