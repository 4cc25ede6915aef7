"""Files of recordings: version 1.

``popsrREC``, the version and the bytes of the header as u32, the header (JSON, see ``program_table``), a stream of
records, ``popsrEND`` and the BLAKE2b digest (16 bytes) of all before it. Numbers are little-endian. A record is its tag
as u32 and

1. run: step u64, seed u64
2. slot: an instruction. number, op, nodes of its path (count, then kind and component of each), ops that it does
   (count, numbers), outputs (count, then of each: index, blocks by replica (count, labels), number of blocks), all u32
3. variable: tensor, labels, 1, blocks, all u32; a u64 hash of each block
4. stream: number, rows by replica, transfers, rows, all u32; a u64 hash of each row of each transfer
5. row: an instruction has run. slot u32, u32 number of each iteration around it, u64 hash of each output's blocks; 0
   where the block's replicas did not take part
6. end of a run

A label that is not below the number of blocks is of a replica whose value is not recorded: a rank's records, which
``merging`` joins, are only about its own replicas.

The hash is specified in ``cpp/popsr/runtime/observe/value_hash.h``.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["MAGIC", "TRAILER", "VERSION", "Tag"]

MAGIC, TRAILER, VERSION = b"popsrREC", b"popsrEND", 1


class Tag(IntEnum):
    """The first word of a record."""

    RUN = 1
    SLOT = 2
    VARIABLE = 3
    STREAM = 4
    ROW = 5
    END = 6
