"""The hash of a tensor of PyTorch, computed by integer operations on the tensor's own device, a block at a time."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from popsr._support.host.frameworks import framework
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, UnsupportedError
from popsr.guard._keys import BLOCK_BYTES, BLOCK_ROWS, ROW_WORDS, column_keys, length_key, row_keys

__all__ = ["WHERE", "block_of", "device_hash", "require_bytes", "row_blocks", "tensor_hash"]

WHERE = "guard"
_BITS = (1 << 64) - 1


@public
def tensor_hash(tensor: Any) -> int:
    """The 64-bit hash of a tensor's bytes, an int from 0; of a DTensor of this rank's part.

    Two tensors of equal bytes have equal hashes, whatever their device and strides. Dtype and shape are not in it.

    Args:
        tensor: a tensor with data, of any dtype whose elements have whole bytes.
    Raises:
        ArgumentTypeError: it is not a tensor.
        UnsupportedError: it has no bytes of its own: it is on the meta device, sparse or quantised.
    """
    torch = framework("tensor_hash", "torch")
    if not isinstance(tensor, torch.Tensor):
        raise ArgumentTypeError(f"tensor_hash: not a tensor, got {shown(tensor)}, expected a torch.Tensor")
    with torch.no_grad():
        return int(device_hash(require_bytes("tensor_hash: tensor", tensor))) & _BITS


def require_bytes(what: str, tensor: Any) -> Any:
    """The tensor itself without gradients, of a DTensor its local part, if it has bytes.

    Raises:
        UnsupportedError: it has none.
    """
    torch = framework(WHERE, "torch")
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    # A collective of DTensor may be on its way.
    local = local.wait() if hasattr(local, "trigger_wait") else local
    kind = None
    if local.is_meta:
        kind = "is on the meta device"
    elif local.layout != torch.strided or local.is_quantized:
        kind = "is sparse or quantised"
    elif getattr(local, "is_nested", False):
        kind = "is nested"
    elif hasattr(local, "__tensor_flatten__"):
        kind = f"is a {type(local).__name__}, which is made of several tensors"
    if kind is not None:
        raise UnsupportedError(f"{what} {kind}, got {local.dtype!s}, expected a tensor that has bytes")
    return local.detach().resolve_conj().resolve_neg()


def device_hash(local: Any) -> Any:
    """The hash as a 0-dim int64 tensor on the tensor's device; nothing waits for the device."""
    torch = framework(WHERE, "torch")
    nbytes = local.numel() * local.element_size()
    total = torch.full((), _signed(length_key() * nbytes), dtype=torch.int64, device=local.device)
    for first, rows in row_blocks(local):
        keys = _row_keys(str(local.device), first // BLOCK_ROWS)
        total += (rows * keys[: len(rows)]).sum()
    return total


def row_blocks(local: Any) -> Iterator[tuple[int, Any]]:
    """Sums of the rows, a block at a time, each with the number of its first row."""
    torch = framework(WHERE, "torch")
    keys = _column_keys(str(local.device))
    buffer = None
    for number, words in enumerate(_word_blocks(local)):
        whole, rest = divmod(len(words), ROW_WORDS)
        if buffer is None:
            size = min(len(words), BLOCK_ROWS * ROW_WORDS)
            buffer = torch.empty(size, dtype=torch.int64, device=local.device)
        wide = buffer[: len(words)].copy_(words)
        sums = []
        if whole:
            sums.append(wide[: whole * ROW_WORDS].view(whole, ROW_WORDS).mul_(keys).sum(1))
        if rest:
            sums.append(wide[whole * ROW_WORDS :].mul_(keys[:rest]).sum(0, keepdim=True))
        yield number * BLOCK_ROWS, sums[0] if len(sums) == 1 else torch.cat(sums)


def block_of(local: Any, number: int) -> Any:
    """Bytes of one block as a uint8 tensor."""
    torch = framework(WHERE, "torch")
    flat = _flat_bytes(local)
    if flat is not None:
        return flat[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES]
    for i, words in enumerate(_word_blocks(local)):
        if i == number:
            nbytes = local.numel() * local.element_size() - number * BLOCK_BYTES
            return words.view(torch.uint8)[:nbytes]
    return torch.empty(0, dtype=torch.uint8, device=local.device)


def _word_blocks(local: Any) -> Iterator[Any]:
    """The bytes as int16 in order, a block at a time; an odd last byte has a zero behind it."""
    torch = framework(WHERE, "torch")
    flat = _flat_bytes(local)
    if flat is not None:
        if flat.storage_offset() % 2 == 0 and len(flat) % 2 == 0:
            yield from flat.view(torch.int16).split(BLOCK_BYTES // 2) if len(flat) else ()
            return
        pieces: Iterator[Any] = iter((flat,))
    else:
        pieces = _pieces(local)
    size = min(BLOCK_BYTES, local.numel() * local.element_size() + 1)
    buffer, held = torch.empty(size + size % 2, dtype=torch.uint8, device=local.device), 0
    for piece in pieces:
        while len(piece):
            taken = min(len(piece), BLOCK_BYTES - held)
            buffer[held : held + taken].copy_(piece[:taken])
            piece, held = piece[taken:], held + taken
            if held == BLOCK_BYTES:
                yield buffer.view(torch.int16)
                held = 0
    if held:
        if held % 2:
            buffer[held] = 0
        yield buffer[: held + held % 2].view(torch.int16)


def _flat_bytes(local: Any) -> Any:
    """All bytes as they lie in memory, if they lie there in order; else None."""
    torch = framework(WHERE, "torch")
    if not local.is_contiguous():
        return None
    return local.view(-1).view(torch.uint8)


def _pieces(local: Any) -> Iterator[Any]:
    """Copies of parts whose elements are not in order, none larger than a block."""
    torch = framework(WHERE, "torch")
    if local.numel() * local.element_size() <= BLOCK_BYTES or local.is_contiguous():
        yield local.contiguous().view(-1).view(torch.uint8)
        return
    inner = math.prod(local.shape[1:]) * local.element_size()
    step = max(1, BLOCK_BYTES // max(1, inner))
    for part in local.split(step) if len(local) > 1 else (local[0],):
        yield from _pieces(part)


@functools.lru_cache(maxsize=8)
def _column_keys(device: str) -> Any:
    return _tensor(column_keys(), device)


@functools.lru_cache(maxsize=1 << 12)
def _row_keys(device: str, block: int) -> Any:
    return _tensor(row_keys(block * BLOCK_ROWS, (block + 1) * BLOCK_ROWS), device)


def _tensor(keys: np.ndarray[Any, np.dtype[np.uint64]], device: str) -> Any:
    torch = framework(WHERE, "torch")
    with torch.inference_mode(False):
        return torch.from_numpy(keys.view(np.int64)).to(device)


def _signed(value: int) -> int:
    value &= _BITS
    return value - (1 << 64) if value >> 63 else value
