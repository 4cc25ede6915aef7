"""Roundings of a step: by the core on the CPU, and by torch's own operations on integers on other devices.

Both have the same bits. Elsewhere they are made of parts of a parameter, one after the other, as the operations take
some dozen integers for each element.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from popsr.errors import UnsupportedError
from popsr.sr._call import Key
from popsr.sr._cast import cast
from popsr.sr._portable import of_torch
from popsr.sr._runs import Runs
from popsr.sr._sums import add_
from popsr.sr._torch.ops import key_tensor

__all__ = ["add_update", "is_portable", "rounded"]

_PART = 1 << 24


def is_portable(p: Any) -> bool:
    """Whether the core cannot step a parameter: it is on another device."""
    return not p.is_cpu


def add_update(name: str, p: Any, update: Any, factor: float | None, key: Key, offset: Any) -> None:
    """``p <- p + factor * update``, rounded once.

    Args:
        name: of the optimiser, for messages.
        p: the parameter.
        update: of its shape.
        factor: None for 1.
        key: with its step.
        offset: number of the first element, or the runs.
    Raises:
        UnsupportedError: the runs are of another device, or the update is float64 and has a factor there.
    """
    if not is_portable(p):
        add_(p, update, alpha=1.0 if factor is None else factor, key=key, offset=offset)
        return
    words, first = key_tensor(key), _first(name, p, offset)
    flat, changes = p.reshape(-1), update.reshape(-1)
    for part, number in _parts(flat, first):
        flat[part] = of_torch.add(name, flat[part], changes[part], words, "sr", "ieee", number, factor)
    if not p.is_contiguous():  # flat may be a copy
        p.copy_(flat.view(p.shape))


def rounded(name: str, value: Any, dtype: torch.dtype, key: Key, offset: Any) -> Any:
    """A tensor in a narrower format; arguments as of ``add_update``.

    Raises:
        UnsupportedError: the runs are of another device.
    """
    if not is_portable(value):
        return cast(value, dtype, key=key, offset=offset)
    words, first = key_tensor(key), _first(name, value, offset)
    flat, out = value.reshape(-1), torch.empty(value.numel(), dtype=dtype, device=value.device)
    for part, number in _parts(flat, first):
        out[part] = of_torch.cast(flat[part], dtype, words, "sr", "ieee", number)
    return out.view(value.shape)


def _first(name: str, p: Any, offset: Any) -> int:
    if isinstance(offset, Runs):
        raise UnsupportedError(
            f"{name}: a part of a parameter on {p.device} is in pieces of the whole, expected a part along axis 0"
        )
    return int(offset)


def _parts(flat: Any, first: int) -> Iterator[tuple[slice, int]]:
    """Slices, each with the number of its first element."""
    for start in range(0, flat.numel(), _PART):
        yield slice(start, start + _PART), first + start
