"""The progress bar of a run."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, MissingPackageError

__all__ = ["Advance", "progress_bar"]

Advance = Callable[[int], object]
"""Told after each iteration how many have ended since the last call."""


def progress_bar(
    where: str, progress: object, iterations: int
) -> contextlib.AbstractContextManager[Advance | None]:
    """A bar as a context manager: it gives what moves the bar on, and closes the bar however it is left.

    Args:
        where: the call that asks for it, for errors.
        progress: True, or the text before the bar.
        iterations: the whole run's. With fewer than two there is nothing to show.
    Raises:
        TypeError: ``progress`` is neither bool nor str.
        ImportError: tqdm is not installed.
    """
    if not isinstance(progress, (bool, str)):
        raise ArgumentTypeError(f"{where}: progress is not a bool or str, got {shown(progress)}")
    make_bar = _tqdm(where)
    if iterations < 2:
        return contextlib.nullcontext()
    description = progress if isinstance(progress, str) else None
    return _shown(functools.partial(make_bar, total=iterations, desc=description, unit="iteration"))


@contextlib.contextmanager
def _shown(make_bar: Callable[[], Any]) -> Iterator[Advance]:
    with make_bar() as bar:
        yield bar.update


def _tqdm(where: str) -> Callable[..., Any]:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        raise MissingPackageError(
            f"{where}: the package tqdm is not installed, expected it from pip install popsr[progress]"
        ) from None
    made: Callable[..., Any] = tqdm
    return made
