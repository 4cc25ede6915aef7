"""The hash of an array of JAX, computed by operations on 32 bits, so that it needs no types of 64 bits.

Numbers of 64 bits are pairs of uint32, the low half first.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from popsr._support.host.frameworks import framework
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, UnsupportedError
from popsr.guard._keys import BLOCK_ROWS, ROW_WORDS, column_keys, length_key, row_keys

__all__ = ["WHERE", "array_hash", "flat_bits", "hash_words"]

WHERE = "guard"
_SIGN = 0x8000
_PARTS = re.compile(r"u?int[124]|float[46]_\w+")
_Pair = tuple[Any, Any]


@public
def array_hash(array: Any) -> Any:
    """The 64-bit hash of an array's bytes, two uint32, the low half first; it can be traced.

    Two arrays of equal bytes have equal hashes, on every device, those of ``popsr.guard.torch.tensor_hash``.
    Dtype and shape are not in it.

    Args:
        array: an array of JAX or NumPy, of any dtype whose elements have whole bytes.
    Raises:
        ArgumentTypeError: it is not an array.
        UnsupportedError: its elements have parts of bytes, as of int4, or JAX would convert them, as int64 without x64.
    """
    return hash_words(flat_bits("array_hash: array", array))


def flat_bits(what: str, array: Any) -> Any:
    """The elements in order as uint8, uint16 or uint32: of each width what is cheapest to get, of 64 bits halves.

    Raises:
        UnsupportedError: there is none for the dtype.
    """
    jax = framework(WHERE, "jax")
    jnp, lax = jax.numpy, jax.lax
    if isinstance(array, jax.Array):
        if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
            array = jax.random.key_data(array)
    else:
        array = _converted(what, array)
    name = array.dtype.name
    if name == "bool":
        return array.astype(jnp.uint8).reshape(-1)
    if array.dtype.kind == "c":
        array = jnp.stack([array.real, array.imag], -1)
    size = array.dtype.itemsize
    if size not in (1, 2, 4, 8) or _PARTS.fullmatch(name):
        raise UnsupportedError(f"{what} has parts of bytes, got {name}, expected elements of whole bytes")
    word = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint32}[size]
    return lax.bitcast_convert_type(array, word).reshape(-1)


def _converted(what: str, array: Any) -> Any:
    """An array of NumPy as one of JAX, with the same bytes."""
    jnp = framework(WHERE, "jax").numpy
    is_array = isinstance(array, (np.ndarray, np.generic)) and not isinstance(array, np.ma.MaskedArray)
    if not is_array or array.dtype.kind in "OSUMm" or array.dtype.names:
        raise ArgumentTypeError(f"{what} is not an array, got {shown(array)}, expected one of JAX or NumPy")
    found = jnp.asarray(array)
    if found.dtype != array.dtype:
        raise UnsupportedError(
            f"{what} would be converted, got {array.dtype.name}, expected {found.dtype.name}, or jax_enable_x64"
        )
    return found


def hash_words(bits: Any) -> Any:
    """The hash of what ``flat_bits`` returns, a block at a time."""
    jax = framework(WHERE, "jax")
    jnp, lax = jax.numpy, jax.lax
    nbytes = bits.size * bits.dtype.itemsize
    length = length_key() * nbytes & ((1 << 64) - 1)
    total: _Pair = (jnp.uint32(length & 0xFFFFFFFF), jnp.uint32(length >> 32))
    step = BLOCK_ROWS * ROW_WORDS * 2 // bits.dtype.itemsize
    blocks, rest = divmod(bits.size, step)
    rows = blocks * BLOCK_ROWS
    if blocks:
        low, high = (each.reshape(blocks, BLOCK_ROWS) for each in _halves(row_keys(0, rows)))

        def add(i: Any, total: _Pair) -> _Pair:
            part = _words(lax.dynamic_slice(bits, (i * step,), (step,)))
            return _add(total, _block(part.reshape(BLOCK_ROWS, ROW_WORDS), (low[i], high[i])))

        # Inside of shard_map the type of a loop's value says along which axes it varies.
        zero = bits[0].astype(jnp.uint32) & 0
        total = lax.fori_loop(0, blocks, add, (total[0] + zero, total[1] + zero))
    if rest:
        words = _words(bits[blocks * step :])
        count = -(-words.size // ROW_WORDS)
        words = jnp.pad(words, (0, count * ROW_WORDS - words.size)).reshape(count, ROW_WORDS)
        total = _add(total, _block(words, _halves(row_keys(rows, rows + count))))
    return jnp.stack(total)


def _words(bits: Any) -> Any:
    """Words of 16 bits, as uint32, from 0."""
    jax = framework(WHERE, "jax")
    jnp = jax.numpy
    if bits.dtype == jnp.uint8:
        pairs = jnp.pad(bits, (0, bits.size % 2)).reshape(-1, 2).astype(jnp.uint32)
        return pairs[:, 0] | (pairs[:, 1] << 8)
    wide = bits.astype(jnp.uint32)
    return wide if bits.dtype == jnp.uint16 else jnp.stack([wide & 0xFFFF, wide >> 16], -1).reshape(-1)


def _block(words: Any, keys: _Pair) -> _Pair:
    """Rows of words by their keys, summed.

    Words of the specification are signed; here each is 0x8000 more, and the surplus is taken off in the end.
    """
    jax = framework(WHERE, "jax")
    jnp = jax.numpy
    words = words ^ _SIGN
    zero = jnp.zeros(len(words), jnp.uint32)
    surplus = int(column_keys().astype(object).sum()) * -_SIGN & ((1 << 64) - 1)
    rows: _Pair = (zero + jnp.uint32(surplus & 0xFFFFFFFF), zero + jnp.uint32(surplus >> 32))
    for limb in range(4):
        # A product has 32 bits. Sums of 4096 halves of products have at most 28.
        product = words * ((column_keys() >> np.uint64(16 * limb)) & np.uint64(0xFFFF)).astype(np.uint32)
        for half in range(2 if limb < 3 else 1):
            part = ((product >> 16) if half else (product & 0xFFFF)).sum(1, dtype=jnp.uint32)
            rows = _add(rows, _shifted(part, limb + half))
    low, high = _multiply(rows, keys)
    total: _Pair = (jnp.uint32(0), jnp.uint32(0))
    for limb, part in enumerate((low & 0xFFFF, low >> 16, high & 0xFFFF, high >> 16)):
        total = _add(total, _shifted(part.sum(dtype=jnp.uint32), limb))
    return total


def _shifted(value: Any, limbs: int) -> _Pair:
    """A number below 2**32 by 65536 to a power."""
    zero = value ^ value
    return ((value, zero), (value << 16, value >> 16), (zero, value), (zero, value << 16))[limbs]


def _add(a: _Pair, b: _Pair) -> _Pair:
    low = a[0] + b[0]
    return low, a[1] + b[1] + (low < a[0]).astype(low.dtype)


def _multiply(a: _Pair, b: _Pair) -> _Pair:
    """The low 64 bits of a product."""
    x, y = (a[0] & 0xFFFF, a[0] >> 16), (b[0] & 0xFFFF, b[0] >> 16)
    total = (x[0] * y[0], x[1] * y[1])
    for middle in (x[0] * y[1], x[1] * y[0]):
        total = _add(total, _shifted(middle, 1))
    return total[0], total[1] + a[0] * b[1] + a[1] * b[0]


def _halves(keys: np.ndarray[Any, np.dtype[np.uint64]]) -> _Pair:
    jnp = framework(WHERE, "jax").numpy
    low = (keys & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    return jnp.asarray(low), jnp.asarray((keys >> np.uint64(32)).astype(np.uint32))
