"""ARS-7 from its description, one byte at a time: the cipher, the folding of keys, the number of an element.

Rounds: FIPS 197. Round keys: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011. Nothing here comes
from popsr; the layout is the one that cpp/popsr/kernels/noise.h documents.
"""

from __future__ import annotations

Key = tuple[int, int]  # low and high 64 bits

MASK = (1 << 64) - 1
GOLDEN_RATIO, SQRT_3_LESS_1 = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
ROOT: Key = (0x243F6A8885A308D3, 0x13198A2E03707344)


def _times(a: int, b: int) -> int:
    """Product in GF(2^8) modulo x^8 + x^4 + x^3 + x + 1."""
    product = 0
    while b:
        product ^= a * (b & 1)
        a, b = (a << 1) ^ (0x11B * (a >> 7)), b >> 1
    return product


def _substitute(a: int) -> int:
    inverse = next((b for b in range(256) if _times(a, b) == 1), 0)
    out = 0x63
    for turn in range(5):
        out ^= ((inverse << turn) | (inverse >> (8 - turn))) & 0xFF
    return out


SBOX = [_substitute(a) for a in range(256)]
TWICE = [_times(2, a) for a in range(256)]


def _round(state: bytes, key: bytes, *, last: bool) -> bytes:
    """Byte r of column c is state[4 c + r]: substitution, shift of rows, mixing of columns, round key."""
    out = []
    for c in range(4):
        a = [SBOX[state[4 * ((c + r) % 4) + r]] for r in range(4)]
        if not last:
            everything = a[0] ^ a[1] ^ a[2] ^ a[3]
            a = [a[r] ^ everything ^ TWICE[a[r] ^ a[(r + 1) % 4]] for r in range(4)]
        out += a
    return bytes(x ^ k for x, k in zip(out, key, strict=True))


def ars7(counter: Key, key: Key) -> Key:
    """One block."""
    low, high = key
    keys = []
    for _ in range(8):
        keys.append(low.to_bytes(8, "little") + high.to_bytes(8, "little"))
        low, high = (low + GOLDEN_RATIO) & MASK, (high + SQRT_3_LESS_1) & MASK
    start = counter[0].to_bytes(8, "little") + counter[1].to_bytes(8, "little")
    state = bytes(x ^ k for x, k in zip(start, keys[0], strict=True))
    for number in range(1, 8):
        state = _round(state, keys[number], last=number == 7)
    return int.from_bytes(state[:8], "little"), int.from_bytes(state[8:], "little")


def fold(key: Key, domain: int, component: int) -> Key:
    """The key with one more component."""
    return ars7((component, domain), key)


def seed_key(seed: int) -> Key:
    """The key of a seed."""
    return fold(ROOT, 0x101, seed)


def fold_int(key: Key, number: int) -> Key:
    """``key.fold_in(number)``."""
    return fold(key, 0x201, number)


def fold_str(key: Key, text: str) -> Key:
    """``key.fold_in(text)``: the length in bytes, then eight bytes of UTF-8 at a time, the first in the low bits."""
    data = text.encode()
    key = fold(key, 0x202, len(data))
    for start in range(0, len(data), 8):
        key = fold(key, 0x203, int.from_bytes(data[start : start + 8], "little"))
    return key


def at(key: Key, step: int) -> Key:
    """``key.at(step)``."""
    return fold(key, 0x204, step)


def uniform(key: Key, element: int) -> int:
    """The 64-bit number of an element: word d is lane element mod 8 of block (element div 8, d)."""
    u = 0
    for d in range(4):
        low, high = ars7((element // 8, d), key)
        lane = ((high << 64) | low) >> (16 * (element % 8)) & 0xFFFF
        u = u << 16 | lane
    return u
