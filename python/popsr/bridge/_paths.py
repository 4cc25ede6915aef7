"""Paths of values by pattern: one for all layers of a model."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["path_patterns"]

_INDEX = re.compile(r"(?<=\[)\d+(?=\])|(?<=\.)\d+(?=\.|$)|(?<=_)\d+(?=['\].]|$)")
"""Places in lists, as of ``['blocks'][3]``, ``layers.3.weight`` and ``['Block_3']``."""


def path_patterns(paths: Sequence[str]) -> list[str]:
    """Paths, in order, in which a place in a list that differs is a star: ``params['blocks'][*]['up']``."""
    alike: dict[str, list[list[str]]] = {}
    for path in paths:
        alike.setdefault(_INDEX.sub("*", path), []).append(_INDEX.findall(path))
    return [_pattern(skeleton, places) for skeleton, places in alike.items()]


def _pattern(skeleton: str, places: Sequence[Sequence[str]]) -> str:
    """The path with the numbers in which all agree."""
    numbers = iter(at[0] if len(set(at)) == 1 else "*" for at in zip(*places, strict=True))
    return re.sub(r"\*", lambda _: next(numbers, "*"), skeleton)
