"""Sizes by which values are cut into messages between ranks; the same on all ranks."""

from __future__ import annotations

from popsr import _core

__all__ = ["CHAINS", "MESSAGE_BYTES"]

# The largest message in bytes.
MESSAGE_BYTES = _core.MESSAGE_BYTES
# The bytes from which on values are reduced in a chain of ranks, and the elements of its chunks; None: the core's.
CHAINS: tuple[int, int] | None = None
