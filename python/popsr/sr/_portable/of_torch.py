"""Casts of torch's tensors by its own operations on integers: on any device, and for ``torch.compile`` to fuse."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from popsr.errors import UnsupportedError
from popsr.sr._portable.cast import cast_bits, is_narrower, widened
from popsr.sr._portable.noise import INTEGER, STEP, derive, fold_text
from popsr.sr._types import Mode, Overflow

__all__ = ["cast", "derived", "require_one_key"]

# Integers of a size in bytes that every device has.
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class TorchArrays:
    """Tensors of a device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def arange(self, n: int) -> Any:
        """Numbers from 0."""
        return torch.arange(n, dtype=torch.int32, device=self._device)

    def constants(self, values: Sequence[int]) -> Any:
        """A tensor of these values."""
        return torch.tensor(values, dtype=torch.int32, device=self._device)

    def take(self, table: Any, index: Any) -> Any:
        """Values of a table at positions."""
        if index.dim() == 0:  # compilers would ask for its value
            return table.index_select(0, index.reshape(1)).reshape(())
        return table[index]

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        """One or the other."""
        return torch.where(condition, x, y)

    def interleave(self, columns: Sequence[Any]) -> Any:
        """Columns as rows, one after the other."""
        return torch.stack(tuple(columns), -1).reshape(-1)

    def scan(self, step: Callable[[Any, Any], Any], state: Any, inputs: Sequence[Sequence[Any]]) -> Any:
        """The state after all steps."""
        return functools.reduce(step, inputs, state)

    def largest(self, x: Any, least: int) -> Any:
        """The greater of each element and a number."""
        return x.clamp(min=least)

    def smallest(self, x: Any, most: int) -> Any:
        """The smaller of each element and a number."""
        return x.clamp(max=most)


def digits_of(number: torch.Tensor, device: torch.device) -> list[torch.Tensor]:
    """The digits of a 64-bit number that is an integer tensor ``[]``."""
    wide = number.to(device=device, dtype=torch.int64)
    return [((wide >> shift) & 0xFFFF).to(torch.int32) for shift in (0, 16, 32, 48)]


def _key_digits(key: torch.Tensor, device: torch.device) -> list[torch.Tensor]:
    return [digit for word in (key[0], key[1]) for digit in digits_of(word, device)]


def derived(key: torch.Tensor, data: int | str | torch.Tensor, step: bool) -> torch.Tensor:
    """``key.at(data)``, or ``key.fold_in(data)``, on the device of the key."""
    arrays, digits = TorchArrays(key.device), _key_digits(key, key.device)
    if isinstance(data, str):
        found = fold_text(arrays, digits, data)
    else:
        number = data if isinstance(data, torch.Tensor) else torch.tensor(data - (data >> 63 << 64))
        found = derive(arrays, digits, STEP if step else INTEGER, digits_of(number, key.device))
    words = []
    for half in (found[:4], found[4:]):
        low, second, third, high = (digit.to(torch.int64) for digit in half)
        words.append((((high ^ 0x8000) - 0x8000) << 48) + (third << 32) + (second << 16) + low)
    return torch.stack(words)


def require_one_key(op: str, mapped_axis: int | None) -> None:
    """Refuse a key of each row under ``vmap``.

    Raises:
        UnsupportedError: the key has a mapped axis.
    """
    if mapped_axis is not None:
        raise UnsupportedError(f"{op}: key is mapped by vmap, expected one key for all rows")


def cast(
    x: torch.Tensor, dtype: torch.dtype, key: torch.Tensor, mode: Mode, overflow: Overflow, offset: int
) -> torch.Tensor:
    """``x`` in another format, by operations on integers.

    Raises:
        DTypeError: x is not of floats.
    """
    result: torch.Tensor = _Cast.apply(x, dtype, key, mode, overflow, offset)  # type: ignore[no-untyped-call, unused-ignore]
    return result


class _Cast(torch.autograd.Function):  # type: ignore[misc, unused-ignore]  # Any where the framework is missing
    """The cast, whose gradient is straight-through, and whose rows under ``vmap`` are parts of one array."""

    @staticmethod
    def forward(
        x: torch.Tensor, dtype: torch.dtype, key: torch.Tensor, mode: Mode, overflow: Overflow, offset: int
    ) -> torch.Tensor:
        source, target = widened("cast", _name(x.dtype)), _name(dtype)
        wide = x.detach().to(getattr(torch, source))
        if not is_narrower(target, source):
            return torch.where(wide == wide, wide, torch.nan).to(dtype)
        bits = cast_bits(
            TorchArrays(x.device),
            wide.contiguous().reshape(-1).view(_INTEGERS[wide.element_size()]),
            source,
            target,
            _key_digits(key, x.device),
            mode=mode,
            overflow=overflow,
            offset=offset,
        )
        size = dtype.itemsize
        if size > 1:  # no device has all operations on unsigned integers
            bits = torch.where(bits >> (8 * size - 1) != 0, bits - (1 << 8 * size), bits)
        return bits.to(_INTEGERS[size]).view(dtype).reshape(x.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        del output
        ctx.dtype = inputs[0].dtype

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        """The gradient, in fp32 or wider on its way."""
        wide = torch.float64 if ctx.dtype == torch.float64 else torch.float32
        return grad.to(wide).to(ctx.dtype), None, None, None, None, None

    @staticmethod
    def vmap(_info: Any, in_dims: Any, x: torch.Tensor, *rest: Any) -> Any:
        """The mapped axis is the first one of the array that is rounded."""
        require_one_key("cast", in_dims[2])
        return cast(x.movedim(in_dims[0], 0), *rest), 0


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
