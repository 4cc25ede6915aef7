"""Sizes by which values are cut into messages between ranks; the same on all ranks."""

from __future__ import annotations

__all__ = ["CHAINS", "MESSAGE_BYTES"]

# The largest message in bytes: counts of MPI are 32-bit integers, and libraries keep copies of what they send early.
MESSAGE_BYTES = 1 << 24
# The bytes from which on values are reduced in a chain of ranks, and the elements of its chunks; None: the core's.
CHAINS: tuple[int, int] | None = None
