"""Casts of JAX's arrays by its own operations on integers: on any device, without a callback, for XLA to fuse."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from popsr.sr._formats import FORMATS, format_of
from popsr.sr._portable.cast import cast_bits, is_narrower, widened
from popsr.sr._portable.noise import INTEGER, ROOT, SEED, STEP, derive, digits_of, fold_text
from popsr.sr._types import Mode, Overflow

__all__ = ["cast"]

Chain = tuple[tuple[str, str, str | None], ...]


class JaxArrays:
    """Arrays of JAX."""

    def arange(self, n: int) -> Any:
        """Numbers from 0."""
        return jnp.arange(n, dtype=jnp.int32)

    def constants(self, values: Sequence[int]) -> Any:
        """An array of these values."""
        return jnp.array(values, jnp.int32)

    def take(self, table: Any, index: Any) -> Any:
        """Values of a table at positions."""
        return table.at[index].get(mode="promise_in_bounds")

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        """One or the other."""
        return jnp.where(condition, x, y)

    def interleave(self, columns: Sequence[Any]) -> Any:
        """Columns as rows, one after the other."""
        return jnp.stack(columns, -1).reshape(-1)

    def scan(self, step: Callable[[Any, Any], Any], state: Any, inputs: Sequence[Sequence[Any]]) -> Any:
        """The state after all steps, in a loop: XLA takes minutes to compile the rounds of a cipher in a row."""
        shape = jnp.broadcast_shapes(*(jnp.shape(x) for x in (*state, *inputs[0])))
        start = [jnp.broadcast_to(jnp.asarray(x, jnp.int32), shape) for x in state]
        columns = jnp.stack([jnp.stack([jnp.asarray(x, jnp.int32) for x in each]) for each in inputs])
        return lax.scan(lambda before, each: (step(before, list(each)), None), start, columns)[0]

    def largest(self, x: Any, least: int) -> Any:
        """The greater of each element and a number."""
        return jnp.maximum(x, least)

    def smallest(self, x: Any, most: int) -> Any:
        """The smaller of each element and a number."""
        return jnp.minimum(x, most)


def _digits_of_words(words: Sequence[Any]) -> list[Any]:
    """Digits of 32-bit words that are unsigned, the lowest first."""
    return [(word >> shift & 0xFFFF).astype(jnp.int32) for word in words for shift in (0, 16)]


def _digits_of_traced(number: Any) -> list[Any]:
    """Digits of an integer; one that is negative counts as its 64 bits."""
    bits = 8 * number.dtype.itemsize
    return [((number >> min(shift, bits - 1)) & 0xFFFF).astype(jnp.int32) for shift in (0, 16, 32, 48)]


def _key_digits(chain: Chain, leaves: Sequence[Any]) -> Sequence[Any]:
    """Digits of the key that a chain makes, by the cipher where it is not known."""
    arrays, values = JaxArrays(), iter(leaves)
    (_, kind, _), *rest = chain
    words = jnp.asarray(next(values)).astype(jnp.uint32)
    if kind == "seed":
        root = [digit for word in ROOT for digit in digits_of(word)]
        key: Sequence[Any] = derive(arrays, root, SEED, _digits_of_words((words[1], words[0])))
    else:
        key = _digits_of_words(tuple(words))
    for call, kind, text in rest:
        if kind == "text":
            key = fold_text(arrays, key, text or "")
            continue
        data = jnp.asarray(next(values))
        digits = _digits_of_traced(data) if kind == "traced" else _digits_of_words(tuple(data))
        key = derive(arrays, key, STEP if call == "at" else INTEGER, digits)
    return key


def cast(
    x: Any, target: str, chain: Chain, leaves: Sequence[Any], mode: Mode, overflow: Overflow, offset: int
) -> Any:
    """``x`` in another format, by operations on integers.

    Args:
        x: array of floats.
        target: name of the format.
        chain: structure of the key.
        leaves: its integers, which may be traced.
        mode: how to round.
        overflow: what becomes of values that are too large.
        offset: number of the first element.
    Raises:
        DTypeError: x is not of floats.
    """
    return _rounded((target, chain, mode, overflow, offset), tuple(leaves), x)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _rounded(call: tuple[Any, ...], leaves: tuple[Any, ...], x: Any) -> Any:
    return _mapped(call)(x, *leaves)


@_rounded.defjvp  # type: ignore[untyped-decorator, unused-ignore]  # Any where the framework is missing
def _rounded_jvp(call: tuple[Any, ...], primals: Any, tangents: Any) -> Any:
    """Straight-through: the gradient of the cast without rounding, in fp32 or wider on its way."""
    wide = jnp.float64 if primals[1].dtype == jnp.float64 else jnp.float32
    target = FORMATS[call[0]].numpy
    return _rounded(call, *primals), tangents[1].astype(wide).astype(target)


def _mapped(call: tuple[Any, ...]) -> Any:
    """The cast; under ``vmap`` rows are parts of one array, but where keys are mapped, each counts its own row."""
    plain = functools.partial(_cast, call)
    rounded: Any = jax.custom_batching.custom_vmap(plain)

    @rounded.def_vmap  # type: ignore[untyped-decorator, unused-ignore]
    def _(_size: int, is_mapped: Sequence[bool], x: Any, *leaves: Any) -> Any:
        if any(is_mapped[1:]):
            axes = [0 if each else None for each in is_mapped]
            return jax.vmap(plain, axes)(x, *leaves), True
        return _mapped(call)(x, *leaves), True

    return rounded


def _cast(call: tuple[Any, ...], x: Any, *leaves: Any) -> Any:
    target, chain, mode, overflow, offset = call
    form = format_of(jnp.dtype(x.dtype))
    source = widened("cast", form.name if form else str(x.dtype))
    wide = _widen(x, source)
    to = FORMATS[target]
    if not is_narrower(target, source):
        return jnp.where(wide == wide, wide, jnp.nan).astype(to.numpy)
    integers = jnp.int64 if source == "float64" else jnp.int32
    bits = lax.bitcast_convert_type(wide, integers).reshape(-1)
    key = _key_digits(chain, leaves)
    found = cast_bits(JaxArrays(), bits, source, target, key, mode=mode, overflow=overflow, offset=offset)
    return lax.bitcast_convert_type(found.astype(to.raw), to.numpy).reshape(x.shape)


def _widen(x: Any, source: str) -> Any:
    """The array in float32 or float64; bfloat16 by its bits, as a conversion may flush what is subnormal."""
    if x.dtype == jnp.bfloat16:
        words = lax.bitcast_convert_type(x, jnp.uint16).astype(jnp.uint32) << 16
        return lax.bitcast_convert_type(words, jnp.float32)
    return x.astype(source)
