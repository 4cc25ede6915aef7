"""Noise in array operations: ARS-7 by look-ups in tables, keys, and the numbers of elements.

Numbers of 64 bits are four digits of 16 bits, the lowest first: no sum of digits overflows, and digits may be Python's
integers or arrays. Blocks of the cipher are four 32-bit words, the lowest first.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from popsr.sr._portable.arrays import Arrays, join, split

__all__ = ["ROOT", "SEED", "derive", "digits_of", "fold_text", "numbers"]

Digits = Sequence[Any]

ROOT = (0x243F6A8885A308D3, 0x13198A2E03707344)
SEED, INTEGER, LENGTH, EIGHT_BYTES, STEP = 0x101, 0x201, 0x202, 0x203, 0x204
_ROUNDS = 7
_STRIDES = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)  # golden ratio; sqrt(3) - 1
_LANES = 8  # elements of a block


def digits_of(word: int) -> tuple[int, ...]:
    """The digits of a 64-bit number."""
    return tuple(word >> shift & 0xFFFF for shift in (0, 16, 32, 48))


def _make_tables() -> tuple[int, ...]:
    """Columns of each byte in each row after SubBytes and MixColumns, 4 * 256, then after SubBytes alone."""
    powers = [1]  # of 3, in GF(2^8) modulo x^8 + x^4 + x^3 + x + 1
    for _ in range(254):
        powers.append(powers[-1] ^ _times_two(powers[-1]))
    substituted = {0: 0x63}
    for exponent, value in enumerate(powers):
        inverse = powers[-exponent % 255]
        turned = [inverse << turn | inverse >> (8 - turn) for turn in range(5)]
        substituted[value] = functools.reduce(int.__xor__, turned) & 0xFF ^ 0x63
    bytes_ = [substituted[value] for value in range(256)]
    mixed = [_times_two(b) | b << 8 | b << 16 | (_times_two(b) ^ b) << 24 for b in bytes_]
    rows = [(m << 8 * row | m >> (32 - 8 * row)) & 0xFFFFFFFF for row in range(4) for m in mixed]
    last = [b << 8 * row for row in range(4) for b in bytes_]
    return tuple(word - (word >> 31 << 32) for word in (*rows, *last))


def _times_two(byte: int) -> int:
    return (byte << 1 ^ (byte >> 7) * 0x11B) & 0xFF


_TABLES = _make_tables()


def _round_keys(xp: Arrays, key: Digits) -> list[list[Any]]:
    """The words of each round's key: both halves of the key grow by a constant from round to round."""
    low, high = (digits_of(stride) for stride in _STRIDES)
    states = xp.states(lambda each: _plus(each[:4], low) + _plus(each[4:], high), list(key), _ROUNDS)
    return [[join(each[k + 1], each[k]) for k in (0, 2, 4, 6)] for each in states]


def _plus(x: Digits, y: Digits) -> list[Any]:
    carry: Any = 0
    total = []
    for a, b in zip(x, y, strict=True):
        digit = a + b + carry
        total.append(digit & 0xFFFF)
        carry = digit >> 16
    return total


def _encrypt(xp: Arrays, counter: Sequence[Any], key: Digits) -> list[Any]:
    """One block for each element of the words of ``counter``."""
    table = xp.constants(_TABLES)
    keys = _round_keys(xp, key)
    state = [c ^ k for c, k in zip(counter, keys[0], strict=True)]
    state = xp.scan(lambda before, key: _round(xp, table, before, key, 0), state, keys[1:-1])
    return _round(xp, table, state, keys[-1], 1024)


def _round(xp: Arrays, table: Any, state: Sequence[Any], key: Sequence[Any], start: int) -> list[Any]:
    return [_column(xp, table, state, column, start) ^ key[column] for column in range(4)]


def _column(xp: Arrays, table: Any, state: Sequence[Any], column: int, start: int) -> Any:
    """A column after the shift of rows, by tables from ``start`` on."""
    found: Any = 0
    for row in range(4):
        byte = (state[(column + row) % 4] >> 8 * row) & 0xFF
        found = xp.take(table, byte + (start + 256 * row)) ^ found
    return found


def derive(xp: Arrays, key: Digits, domain: int, component: Digits) -> list[Any]:
    """The key with one more component, in digits."""
    zero = xp.arange(1)[0]
    counter = [join(component[k + 1], component[k]) ^ zero for k in (0, 2)] + [domain ^ zero, zero]
    words = _encrypt(xp, counter, key)
    return [digit for word in words for digit in reversed(split(word))]


def fold_text(xp: Arrays, key: Digits, text: str) -> Digits:
    """``key.fold_in(text)``."""
    data = text.encode()
    key = derive(xp, key, LENGTH, digits_of(len(data)))
    for start in range(0, len(data), 8):
        key = derive(xp, key, EIGHT_BYTES, digits_of(int.from_bytes(data[start : start + 8], "little")))
    return key


def numbers(xp: Arrays, key: Digits, shape: Sequence[int], offset: int | Digits, words: int) -> list[Any]:
    """The highest digits of the numbers of an array's elements, the highest digit first.

    Args:
        xp: the framework.
        key: its 8 digits.
        shape: of the array, which has at most 2**34 - 16 elements.
        offset: number of the first element: an integer, or its digits, which may be arrays.
        words: digits, from 0 to 4.
    Returns:
        arrays of int32 from 0 to 65535.
    """
    n = math.prod(shape)
    if isinstance(offset, int):
        block, skipped = divmod(offset, _LANES)
        first: Digits = digits_of(block)
        most: Any = skipped
    else:
        upper = [*offset[1:], 0]
        first = [a >> 3 | (b & 7) << 13 for a, b in zip(offset, upper, strict=True)]
        skipped, most = offset[0] & 7, _LANES - 1
    position = xp.arange(-(-(most + n) // _LANES))
    low = _plus([position & 0xFFFF, position >> 16, 0, 0], first)
    if not words:
        return []
    rows = xp.arange(words).reshape(words, 1)  # of blocks, one for each digit
    columns = _encrypt(xp, [join(low[1], low[0]), join(low[3], low[2]), rows, 0], key)
    halves = [half for column in columns for half in reversed(split(column))]
    return [
        xp.part(xp.interleave([half[word] for half in halves]), skipped, n).reshape(shape)
        for word in range(words)
    ]
