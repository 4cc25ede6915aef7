"""Casts and sums of JAX's arrays by its own operations on integers: on any device, for XLA to fuse."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from popsr.sr._formats import FORMATS, format_of
from popsr.sr._portable.add import add_bits
from popsr.sr._portable.arrays import NumpyArrays
from popsr.sr._portable.cast import cast_bits, is_narrower, widened
from popsr.sr._portable.noise import INTEGER, ROOT, SEED, STEP, derive, digits_of, fold_text
from popsr.sr._types import Mode, Overflow

__all__ = ["Call", "compute"]

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

    def part(self, x: Any, start: Any, n: int) -> Any:
        """Elements from one on."""
        return x[start : start + n] if isinstance(start, int) else lax.dynamic_slice(x, (start,), (n,))

    def scan(self, step: Callable[[Any, Any], Any], state: Any, inputs: Sequence[Sequence[Any]]) -> Any:
        """The state after all steps, in a loop: XLA takes minutes to compile the rounds of a cipher in a row."""
        start = _alike(state, inputs[0])
        columns = jnp.stack([jnp.stack([jnp.asarray(x, jnp.int32) for x in each]) for each in inputs])
        return lax.scan(lambda before, each: (step(before, list(each)), None), start, columns)[0]

    def states(self, step: Callable[[Any], Any], state: Sequence[Any], n: int) -> list[Any]:
        """The states before and after each step, in a loop; XLA would compute all again in what needs one."""
        if all(isinstance(each, int) for each in state):
            return NumpyArrays().states(step, state, n)
        start = _alike(state, ())
        _, found = lax.scan(lambda before, _: (step(before), jnp.stack(step(before))), start, length=n)
        return [start, *(list(each) for each in found)]

    def largest(self, x: Any, least: int) -> Any:
        """The greater of each element and a number."""
        return jnp.maximum(x, least)

    def smallest(self, x: Any, most: int) -> Any:
        """The smaller of each element and a number."""
        return jnp.minimum(x, most)


def _alike(state: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """A state of a loop: of one shape, and in ``shard_map`` varying along the same axes, as it will be after a step."""
    zero = functools.reduce(lambda x, y: x + y, (jnp.asarray(x, jnp.int32) & 0 for x in (*state, *others)))
    return [x + zero for x in state]


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


class Call(NamedTuple):
    """All of a call that is known when it is traced. The number is in the place of the second operand, if it is one."""

    op: str
    number: float | None
    target: str
    chain: Chain
    mode: Mode
    overflow: Overflow
    offset: int | None  # None: an array


def compute(call: Call, leaves: Sequence[Any], offset: Sequence[Any], arrays: Sequence[Any]) -> Any:
    """The operation by operations on integers; under ``vmap`` rows are parts of one array.

    Where keys or offsets are mapped, each counts its own row.

    Args:
        call: what is known.
        leaves: integers of the key, which may be traced.
        offset: the number of the first element if it may be traced: an integer, or two words, the lower one first.
        arrays: operands of equal rank.
    Raises:
        DTypeError: an operand is not of floats.
    """
    count = len(arrays)

    def plain(*values: Any) -> Any:
        rest = values[count:]
        return _compute(call, values[:count], rest[: len(leaves)], rest[len(leaves) :])

    def make() -> Any:
        rounded: Any = jax.custom_batching.custom_vmap(plain)

        @rounded.def_vmap  # type: ignore[untyped-decorator, unused-ignore]
        def _(_size: int, is_mapped: Sequence[bool], *values: Any) -> Any:
            if any(is_mapped[count:]):
                return jax.vmap(plain, [0 if each else None for each in is_mapped])(*values), True
            moved = [x if each else x[None] for x, each in zip(values[:count], is_mapped, strict=False)]
            return make()(*moved, *values[count:]), True

        return rounded

    return make()(*arrays, *leaves, *offset)


def _compute(call: Call, arrays: Sequence[Any], leaves: Sequence[Any], offset: Sequence[Any]) -> Any:
    xp, to = JaxArrays(), FORMATS[call.target]
    key = _key_digits(call.chain, leaves)
    first = _digits_of_offset(offset[0]) if call.offset is None else call.offset
    rounding: Any = {"mode": call.mode, "overflow": call.overflow, "offset": first}
    sources = [_bits(call.op, x) for x in arrays]
    if call.op != "cast":
        shape = jnp.broadcast_shapes(*(x.shape for x in arrays))
        operands: list[Any] = [*sources, *([] if call.number is None else [call.number])]
        found = add_bits(xp, operands, call.op == "sub", call.target, key, shape, **rounding)
    elif is_narrower(call.target, sources[0][0]):
        found = cast_bits(xp, sources[0][1], sources[0][0], call.target, key, **rounding)
    else:
        wide = arrays[0].astype(sources[0][0])
        return jnp.where(wide == wide, wide, jnp.nan).astype(to.numpy)
    return lax.bitcast_convert_type(found.astype(f"int{8 * to.itemsize}"), to.numpy)


def _digits_of_offset(offset: Any) -> list[Any]:
    return _digits_of_traced(offset) if offset.ndim == 0 else _digits_of_words(tuple(offset))


def _bits(op: str, x: Any) -> tuple[str, Any]:
    """The format that has the values, and their bits; a conversion of bfloat16 may flush what is subnormal."""
    form = format_of(jnp.dtype(x.dtype))
    source = widened(op, form.name if form else str(x.dtype))
    if x.dtype == jnp.bfloat16:
        return source, lax.bitcast_convert_type(x, jnp.int16).astype(jnp.int32) << 16
    integers = jnp.int64 if source == "float64" else jnp.int32
    return source, lax.bitcast_convert_type(x.astype(source), integers)
