"""Words for two copies of a value that differ: of checkpoints, and of ranks as they train."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["bits_text", "difference_text"]


def bits_text(data: bytes, value: object = None) -> str:
    """An element, little-endian: ``0x3f800000 (1.0)``, or the bits alone where no value is known."""
    bits = f"0x{data[::-1].hex()}"
    return bits if value is None else f"{bits} ({value})"


def difference_text(
    ranks: tuple[int, int], element: Sequence[int] | None, values: tuple[str, str], places: str = ""
) -> str:
    """Two ranks, the first element in which they differ, and both values."""
    at = "" if element is None else f" at element {list(element)}"
    return f"ranks {ranks[0]} and {ranks[1]}{places} differ{at}, {values[0]} and {values[1]}"
