"""On which tiles ops are made."""

from __future__ import annotations

import contextlib

from popsr._program.context import io_tiles
from popsr._support.host.arguments import read_flag

__all__ = ["tiles"]


def tiles(use_io_tiles: bool) -> contextlib.AbstractContextManager[None]:
    """``io_tiles``, or a context that changes nothing.

    Args:
        use_io_tiles: which.
    """
    return io_tiles() if read_flag("use_io_tiles", use_io_tiles) else contextlib.nullcontext()
