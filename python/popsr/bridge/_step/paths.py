"""Paths of values by pattern: one for all layers of a model."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["named_paths", "named_patterns", "path_patterns"]

_INDEX = re.compile(r"(?<=\[)\d+(?=\])|(?<=\.)\d+(?=\.|$)|(?<=/)\d+(?=/|$)|(?<=_)\d+(?=['\]./]|$)")
"""Places in lists, as of ``['blocks'][3]``, ``layers.3.weight``, ``layers/3/attn`` and ``['Block_3']``."""

_SHOWN = 4
"""Patterns that a line shows."""


def named_paths(paths: Sequence[str]) -> str:
    """Paths by pattern in words: the first four, how many more there are, and of how many values.

    Args:
        paths: names of values.
    """
    count = f" ({len(paths)} values)" if len(paths) > len(path_patterns(paths)) else ""
    return named_patterns(paths, _SHOWN) + count


def named_patterns(paths: Sequence[str], shown: int) -> str:
    """Patterns of paths in words: the first ones, and how many more there are.

    Args:
        paths: names of values, or of scopes.
        shown: how many are named.
    """
    patterns = path_patterns(paths)
    more = f" and {len(patterns) - shown} more" if len(patterns) > shown else ""
    return ", ".join(f"'{pattern}'" for pattern in patterns[:shown]) + more


def path_patterns(paths: Sequence[str]) -> list[str]:
    """Paths, in order, in which a place in a list that differs is a star: ``params['blocks'][*]['up']``."""
    alike: dict[tuple[str, ...], list[list[str]]] = {}
    for path in paths:
        alike.setdefault(tuple(_INDEX.split(path)), []).append(_INDEX.findall(path))
    return [_pattern(texts, [*zip(*places, strict=True)]) for texts, places in alike.items()]


def _pattern(texts: Sequence[str], places: Sequence[Sequence[str]]) -> str:
    """The path of texts around places, with the numbers in which all agree."""
    numbers = [at[0] if len(set(at)) == 1 else "*" for at in places]
    return texts[0] + "".join(number + text for number, text in zip(numbers, texts[1:], strict=True))
