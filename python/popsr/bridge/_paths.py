"""Paths of values by pattern: one for all layers of a model."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["names_of_paths", "path_patterns"]

_INDEX = re.compile(r"(?<=\[)\d+(?=\])|(?<=\.)\d+(?=\.|$)|(?<=_)\d+(?=['\].]|$)")
"""Places in lists, as of ``['blocks'][3]``, ``layers.3.weight`` and ``['Block_3']``."""


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


def names_of_paths(paths: Sequence[str]) -> str:
    """Paths for a sentence: the first few patterns, and how many there are."""
    patterns = path_patterns(paths)
    more = f" and {len(patterns) - 4} more" if len(patterns) > 4 else ""
    count = f" ({len(paths)} values)" if len(paths) > len(patterns) else ""
    return ", ".join(f"'{pattern}'" for pattern in patterns[:4]) + more + count
