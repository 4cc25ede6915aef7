"""Keys of which the same numbers are drawn twice, found while a context is open."""

from __future__ import annotations

import contextlib
import math
import sys
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from popsr._support.text.entry_points import public
from popsr._support.text.frames import frame_text, is_inside, library_path
from popsr._support.text.shown import shown
from popsr.errors import KeyReuseWarning
from popsr.sr._runs import Runs
from popsr.sr._types import Key

__all__ = ["draws", "is_watched", "watch_keys"]

_Ends = npt.NDArray[np.uint64]


class _Draw(NamedTuple):
    """Numbers that a call draws: runs of them, ascending, and the call."""

    firsts: _Ends
    lasts: _Ends
    op: str
    place: str

    def meets(self, other: _Draw) -> bool:
        """Whether both draw a number."""
        after = np.searchsorted(self.lasts, other.firsts)
        there = after < len(self.lasts)
        return bool(np.any(self.firsts[after[there]] <= other.lasts[there]))


class _Watch:
    """Draws so far by the words of their keys, and pairs of lines that were told."""

    def __init__(self) -> None:
        self.draws: dict[tuple[int, int], list[_Draw]] = {}
        self.told: set[tuple[str, str]] = set()


_watches: list[_Watch] = []


@public
@contextlib.contextmanager
def watch_keys() -> Iterator[None]:
    """Warn where two calls inside draw the same numbers of one key: what they round is correlated then.

    Put it around one step of a training. A key should be folded with a name for each array that is rounded, and with
    the number of the step; parts of one array need the ``offset`` of their first element. Seen are calls of
    ``popsr.sr``, those of ``popsr.sr.torch`` and ``popsr.sr.jax`` where they call the core, compiled or not, and each
    weight of the optimisers of ``popsr.sr.torch``; portable forms are not seen. A step that is computed twice on
    purpose, as with checkpoints of activations, is warned of too.

    Warns:
        KeyReuseWarning: once for two lines; it names both.
    Example:
        >>> key, w, b = sr.Key(0).at(3), np.ones(4, np.float16), np.ones(4, np.float16)
        >>> with sr.watch_keys():  # without the names both draw the same, and the second is warned of
        ...     _ = sr.add_(w, 0.0005, key=key.fold_in("w")), sr.add_(b, 0.0005, key=key.fold_in("b"))
        >>> w, b
        (array([1.   , 1.   , 1.   , 1.001], dtype=float16), array([1.001, 1.   , 1.001, 1.001], dtype=float16))
    """
    watch = _Watch()
    _watches.append(watch)
    try:
        yield
    finally:
        _watches.remove(watch)


def is_watched() -> bool:
    """Whether a context is open."""
    return bool(_watches)


def draws(op: str, key: Key, mode: str, offset: Any, shape: tuple[int, ...]) -> None:
    """Note the numbers of a key that a call draws, while a context is open.

    Args:
        op: name of the public function.
        key: as it is drawn from, with its step.
        mode: how it rounds; some modes draw nothing.
        offset: number of the first element, or the runs.
        shape: of what is rounded.
    """
    if not _watches or not mode.startswith("sr") or 0 in shape:
        return
    frame = _user_frame()
    place = frame_text(frame) if frame else "a compiled function"
    mine = _Draw(*_ends(offset, math.prod(shape)), op, place)
    for watch in _watches:
        earlier = watch.draws.setdefault(key.words, [])
        first = next((each for each in earlier if each.meets(mine)), None)
        earlier.append(mine)
        if first is not None and (first.place, place) not in watch.told:
            watch.told.add((first.place, place))
            _warn(key, first, mine, frame)


def _ends(offset: int | Runs, size: int) -> tuple[_Ends, _Ends]:
    """The first and last numbers of runs, ascending."""
    if not isinstance(offset, Runs):
        return np.array([offset], np.uint64), np.array([offset + size - 1], np.uint64)
    stops, added = offset.table.T
    firsts = np.concatenate([np.zeros(1, np.uint64), stops[:-1]]) + added  # modulo 2**64, as the table is
    order = np.argsort(firsts)
    return firsts[order], (stops + added - np.uint64(1))[order]


def _user_frame() -> FrameType | None:
    """The innermost frame that is the user's own, else one of a library; None where a compiled function runs."""
    frame: FrameType | None = sys._getframe(1)
    nearest = None
    while frame is not None:
        file = frame.f_code.co_filename
        if not is_inside(file):
            nearest = nearest or frame
            # Inductor's code is a file outside of torch, whose module is inside.
            if not library_path(file) and not frame.f_globals.get("__name__", "").startswith("torch."):
                return frame
        frame = frame.f_back
    return nearest


def _warn(key: Key, first: _Draw, second: _Draw, frame: FrameType | None) -> None:
    text = (
        f"{second.op}: a key draws the same numbers twice, got {shown(str(key))} in {first.op} at {first.place} and in "
        f"{second.op} at {second.place}, expected key.fold_in(name) for each array, key.at(step) for each step, and "
        "the offset of each part"
    )
    if frame is None:
        warnings.warn(KeyReuseWarning(text), stacklevel=2)
    else:
        registry = frame.f_globals.setdefault("__warningregistry__", {})
        file, line = frame.f_code.co_filename, frame.f_lineno
        warnings.warn_explicit(KeyReuseWarning(text), None, file, line, registry=registry)
