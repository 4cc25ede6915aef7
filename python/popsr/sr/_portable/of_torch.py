"""Casts of torch's tensors by its own operations on integers: on any device, and for ``torch.compile`` to fuse."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from popsr._support.host.arguments import read_number
from popsr.errors import ShapeError, UnsupportedError
from popsr.sr._portable.add import add_bits
from popsr.sr._portable.arrays import NumpyArrays
from popsr.sr._portable.cast import cast_bits, is_narrower, widened
from popsr.sr._portable.noise import INTEGER, STEP, derive, fold_text
from popsr.sr._types import Mode, Overflow

__all__ = ["add", "cast", "derived", "in_front", "require_one_key"]

# Integers of a size in bytes that every device has.
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


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
        """One or the other; of two numbers, which would make integers of 64 bits, in 32 if they fit."""
        if not isinstance(x, int) or not isinstance(y, int):
            return torch.where(condition, x, y)
        fits = all(-(2**31) <= each < 2**31 for each in (x, y, x - y))
        return condition.to(torch.int32 if fits else torch.int64) * (x - y) + y

    def interleave(self, columns: Sequence[Any]) -> Any:
        """Columns as rows, one after the other."""
        return torch.stack(tuple(columns), -1).reshape(-1)

    def part(self, x: Any, start: Any, n: int) -> Any:
        """Elements from one on."""
        return x[start : start + n]

    def scan(self, step: Callable[[Any, Any], Any], state: Any, inputs: Sequence[Sequence[Any]]) -> Any:
        """The state after all steps."""
        return functools.reduce(step, inputs, state)

    def states(self, step: Callable[[Any], Any], state: Sequence[Any], n: int) -> list[Any]:
        """The states before and after each step."""
        return NumpyArrays().states(step, state, n)

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
    return _rounded("cast", x, None, None, dtype, key, mode, overflow, offset)


def add(
    op: str,
    x: torch.Tensor,
    y: Any,
    key: torch.Tensor,
    mode: Mode,
    overflow: Overflow,
    offset: int,
    factor: float | None = None,
) -> torch.Tensor:
    """``x + y``, ``x - y``, or ``x + factor * y``, in the format of ``x``, by operations on integers.

    Args:
        op: name of the public function.
        x: tensor.
        y: tensor, or a number.
        key: its tensor.
        mode: how to round.
        overflow: what becomes of sums that are too large.
        offset: number of the first element.
        factor: of ``y``.
    Raises:
        DTypeError: an operand is not of floats.
        ShapeError: shapes do not broadcast.
        UnsupportedError: ``y`` is on another device, or a float64 with a factor, or that is not finite.
    """
    if factor is not None and (not math.isfinite(factor) or getattr(y, "dtype", None) == torch.float64):
        got = "float64" if math.isfinite(factor) else str(factor)
        raise UnsupportedError(
            f"{op}: a product has no portable form, got {got}, expected a finite factor and narrower tensors"
        )
    if not isinstance(y, torch.Tensor):
        y = read_number(f"{op}: y", y)
    else:
        if any(a != b and 1 not in (a, b) for a, b in zip(x.shape[::-1], y.shape[::-1], strict=False)):
            text = f"{tuple(x.shape)} and {tuple(y.shape)}"
            raise ShapeError(
                f"{op}: shapes do not broadcast, got {text}, expected extents that are equal or 1"
            )
        rank = max(x.dim(), y.dim())
        x, y = (each.reshape((1,) * (rank - each.dim()) + tuple(each.shape)) for each in (x, y))
        if y.device != x.device:
            raise UnsupportedError(f"{op}: y is on another device, got {y.device}, expected {x.device}")
    return _rounded(op, x, y, factor, x.dtype, key, mode, overflow, offset)


def _rounded(
    op: str, x: Any, y: Any, factor: float | None, dtype: torch.dtype, *rounding: Any
) -> torch.Tensor:
    result: torch.Tensor = _Rounded.apply(op, x, y, factor, dtype, *rounding)  # type: ignore[no-untyped-call, unused-ignore]
    return result


class _Rounded(torch.autograd.Function):  # type: ignore[misc, unused-ignore]  # Any where the framework is missing
    """An operation, whose gradient is straight-through, and whose rows under ``vmap`` are parts of one array."""

    @staticmethod
    def forward(
        op: str,
        x: torch.Tensor,
        y: Any,
        factor: float | None,
        dtype: torch.dtype,
        key: torch.Tensor,
        mode: Mode,
        overflow: Overflow,
        offset: int,
    ) -> torch.Tensor:
        arrays, digits, target = TorchArrays(x.device), _key_digits(key, x.device), _name(dtype)
        rounding: Any = {"mode": mode, "overflow": overflow, "offset": offset}
        source, wide = _widen(op, x)
        if op != "cast":
            operands = [(source, _bits(wide)), _operand(op, y)]
            shape = torch.broadcast_shapes(*(each.shape for each in (x, y) if isinstance(each, torch.Tensor)))  # type: ignore[no-untyped-call, unused-ignore]
            found = add_bits(
                arrays, operands, op == "sub", target, digits, tuple(shape), factor=factor, **rounding
            )
        elif is_narrower(target, source):
            found = cast_bits(arrays, _bits(wide), source, target, digits, **rounding)
        else:
            exact: torch.Tensor = torch.where(wide == wide, wide, torch.nan).to(dtype)
            return exact
        result: torch.Tensor = found.to(_INTEGERS[dtype.itemsize]).contiguous().view(dtype)
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        del output
        ctx.op, ctx.factor, ctx.count = inputs[0], inputs[3], len(inputs)
        ctx.forms = [
            (each.shape, each.dtype) if isinstance(each, torch.Tensor) else None for each in inputs[1:3]
        ]

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        """The gradients of the operation before rounding, in fp32 or wider on their way."""
        is_wide = any(form is not None and form[1] == torch.float64 for form in ctx.forms)
        wide = grad.to(torch.float64 if is_wide else torch.float32)
        of_y = wide if ctx.factor is None else ctx.factor * wide
        signed = (wide, -of_y if ctx.op == "sub" else of_y)
        found = [
            None if form is None else each.sum_to_size(form[0]).to(form[1])
            for each, form in zip(signed, ctx.forms, strict=True)
        ]
        return None, *found, *[None] * (ctx.count - 3)

    @staticmethod
    def vmap(_info: Any, in_dims: Any, op: str, x: Any, y: Any, factor: Any, dtype: Any, *rest: Any) -> Any:
        """The mapped axis is the first one of the array that is rounded."""
        require_one_key(op, in_dims[5])
        moved = [in_front(each, dim) for each, dim in zip((x, y), in_dims[1:3], strict=True)]
        return _rounded(op, *moved, factor, dtype, *rest), 0


def in_front(x: Any, dim: int | None) -> Any:
    """A tensor whose axis of ``vmap`` is the first, of extent 1 where it is not mapped; others as they are."""
    if not isinstance(x, torch.Tensor):
        return x
    return x.unsqueeze(0) if dim is None else x.movedim(dim, 0)


def _widen(op: str, x: torch.Tensor) -> tuple[str, torch.Tensor]:
    source = widened(op, _name(x.dtype))
    return source, x.detach().to(getattr(torch, source))


def _operand(op: str, y: Any) -> Any:
    if not isinstance(y, torch.Tensor):
        return float(y)
    source, wide = _widen(op, y)
    return source, _bits(wide)


def _bits(wide: torch.Tensor) -> torch.Tensor:
    return wide.contiguous().view(_INTEGERS[wide.element_size()])


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
