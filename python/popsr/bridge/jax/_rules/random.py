"""Random bits: threefry2x32 exactly, so that a step draws the numbers that it draws in jax.

A key is stored as its two words. Source: J. Salmon and others, Parallel Random Numbers: As Easy as 1, 2, 3 (2011).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge._step.float_bits import integer_as
from popsr.bridge._step.reading import noise_is_off
from popsr.bridge.jax._framework import the_jax
from popsr.bridge.jax._locations import is_of_jax
from popsr.bridge.jax._rules.shape import broadcast
from popsr.bridge.jax._rules.table import Equation, NotSupportedError, Result, rule, width

__all__ = ["without_noise"]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


@rule("threefry2x32")
def _threefry(equation: Equation, key0: Tensor, key1: Tensor, word0: Tensor, word1: Tensor) -> Result:
    return [*threefry(equation, key0, key1, word0, word1)]


def threefry(
    equation: Equation, key0: Tensor, key1: Tensor, word0: Tensor, word1: Tensor
) -> tuple[Tensor, Tensor]:
    """Twenty rounds; every fourth adds words of the key and the number of the group of rounds."""

    def number(value: int) -> Tensor:
        return equation.constant(np.uint32(value), dtypes.uint32)

    keys = [key0, key1, ops.bitwise_xor(ops.bitwise_xor(key0, key1), number(_PARITY))]
    word0, word1 = ops.add(word0, keys[0]), ops.add(word1, keys[1])
    for group in range(5):
        for distance in _ROTATIONS[group % 2]:
            word0 = ops.add(word0, word1)
            turned = ops.bitwise_or(
                ops.shift_left(word1, number(distance)), ops.shift_right_logical(word1, number(32 - distance))
            )
            word1 = ops.bitwise_xor(word0, turned)
        word0 = ops.add(word0, keys[(group + 1) % 3])
        word1 = ops.add(ops.add(word1, keys[(group + 2) % 3]), number(group + 1))
    return word0, word1


def _require_threefry(equation: Equation) -> None:
    impl: Any = equation.params.get("impl")
    if impl is not None and getattr(impl, "name", "") != "threefry2x32":
        raise NotSupportedError(f"keys of {getattr(impl, 'name', impl)}")
    if any(
        aval.shape[-1:] != (2,)
        for aval, key in zip(equation.operands, equation.key_operands, strict=True)
        if key
    ):
        raise NotSupportedError("keys other than threefry2x32")


def _words(keys: Tensor, extra: int) -> tuple[Tensor, Tensor]:
    """The two words of keys, with room for so many dimensions after theirs."""
    lead = keys.shape[:-1]
    first, second = ops.split(keys, [1, 1], keys.rank - 1)
    shape = (*lead, *(1,) * extra)
    return ops.reshape(first, shape), ops.reshape(second, shape)


def _counts(equation: Equation, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The place of each element, as two words."""
    place = np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.uint64).reshape(shape)
    high, low = (place >> np.uint64(32)).astype(np.uint32), (place & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    first = high.reshape(-1)[:1].reshape((1,) * len(shape)) if not high.any() else high
    return equation.constant(first, dtypes.uint32), equation.constant(low, dtypes.uint32)


def _require_partitionable() -> None:
    jax = the_jax()

    if not jax.config.jax_threefry_partitionable:
        raise NotSupportedError("jax_threefry_partitionable is off")


_WITHOUT_NOISE = {"_bernoulli": True, "_normal_real": 0.0}
"""Functions of ``jax.random`` by the name of their jaxpr, and what they give where noise is off."""


def without_noise(equation: Equation, jaxpr: Any) -> Result | None:
    """The result of a call of ``jax.random`` where noise is off: masks keep all, normal numbers are zero."""
    found = _WITHOUT_NOISE.get(str(equation.params.get("name")))
    if found is None or not noise_is_off() or not is_of_jax(getattr(jaxpr, "jaxpr", jaxpr)):
        return None
    equation.importer.builder.note(_NOISE)
    [result] = equation.results
    return [np.full(result.shape, found, result.dtype)]


_NOISE = (
    "random numbers are off beside one device: masks of jax.random.bernoulli keep all, normal numbers are 0, other "
    "bits are equal everywhere"
)


@rule("random_bits")
def _random_bits(equation: Equation, keys: Tensor) -> Result:
    if noise_is_off():
        equation.importer.builder.note(_NOISE)
        half = 1 << (int(equation.params["bit_width"]) - 1)
        return np.full(equation.shape, half, equation.results[0].dtype)
    _require_threefry(equation)
    _require_partitionable()
    shape, width = tuple(map(int, equation.params["shape"])), int(equation.params["bit_width"])
    lead = keys.shape[:-1]
    key0, key1 = _words(keys, len(shape))
    high, low = _counts(equation, shape)
    first, second = threefry(equation, key0, key1, high, low)
    whole = (*lead, *shape)
    if width == 64:
        wide = dtypes.uint64
        moved = ops.shift_left(ops.cast(first, wide), equation.constant(np.uint64(32), wide))
        return ops.reshape(ops.bitwise_or(moved, ops.cast(second, wide)), whole)
    bits = ops.bitwise_xor(first, second)
    if width < 32:
        mask = equation.constant(np.uint32(2**width - 1), dtypes.uint32)
        bits = ops.cast(ops.bitwise_and(bits, mask), equation.dtype)
    return ops.reshape(bits, whole)


@rule("random_split")
def _random_split(equation: Equation, keys: Tensor) -> Result:
    _require_threefry(equation)
    _require_partitionable()
    shape = tuple(map(int, equation.params["shape"]))
    key0, key1 = _words(keys, len(shape))
    high, low = _counts(equation, shape)
    whole = (*keys.shape[:-1], *shape, 1)
    words = [ops.reshape(word, whole) for word in threefry(equation, key0, key1, high, low)]
    return ops.concat(words, len(whole) - 1)


@rule("random_seed")
def _random_seed(equation: Equation, seed: Tensor) -> Result:
    """The seed's 64 bits as two words; of 32 bits the first is 0."""
    _require_threefry(equation)
    return _seeded(equation, seed)


def _seeded(equation: Equation, seed: Tensor) -> Tensor:
    shape = (*seed.shape, 1)
    if width(seed.dtype) == 8:
        wide = ops.cast(seed, dtypes.uint64)
        high = ops.cast(
            ops.shift_right_logical(wide, equation.constant(np.uint64(32), dtypes.uint64)), dtypes.uint32
        )
        low = ops.cast(
            ops.bitwise_and(wide, equation.constant(np.uint64(0xFFFFFFFF), dtypes.uint64)), dtypes.uint32
        )
        words = [ops.reshape(high, shape), ops.reshape(low, shape)]
    else:
        low = ops.reshape(integer_as(seed, dtypes.uint32), shape)
        high = broadcast(equation.constant(np.uint32(0), dtypes.uint32), (1,) * len(shape), shape)
        words = [high, low]
    return ops.concat(words, len(shape) - 1)


@rule("random_fold_in")
def _random_fold_in(equation: Equation, keys: Tensor, data: Tensor) -> Result:
    """The hash of the data as a seed, under the key."""
    _require_threefry(equation)
    key0, key1 = _words(keys, 0)
    seed = integer_as(data, dtypes.uint32)
    zero = equation.constant(np.uint32(0), dtypes.uint32)
    first, second = threefry(equation, key0, key1, zero, seed)
    shape = (*equation.shape[:-1], 1)
    words = [
        ops.reshape(broadcast(word, word.shape, shape[:-1]) if word.shape != shape[:-1] else word, shape)
        for word in (first, second)
    ]
    return ops.concat(words, len(shape) - 1)


@rule("random_wrap", "random_unwrap", "random_clone", plain=True)
def _same_words(keys: Tensor) -> Result:
    return keys


@rule("iota_2x32_shape")
def _iota_2x32(equation: Equation) -> Result:
    high, low = _counts(equation, equation.shape)
    return [broadcast(high, (1,) * len(equation.shape), equation.shape) if high.nelms == 1 else high, low]
