"""Operations for torch that ``torch.compile`` keeps in its graph, with gradients and ``vmap``: one custom operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import torch

from popsr._support.host.arguments import is_a, read_flag, read_number
from popsr._support.text.entry_points import public
from popsr._support.text.shown import type_name
from popsr.errors import ArgumentTypeError
from popsr.sr import _sum
from popsr.sr._by_name import call as call_by_name
from popsr.sr._call import REQUIRED, Key, _key, read_rounding
from popsr.sr._formats import read_format
from popsr.sr._keywords import takes_keywords_of
from popsr.sr._portable import of_torch
from popsr.sr._types import Mode, Overflow, TracedOptions

__all__ = [
    *("add", "addcdiv", "addcmul", "at", "axpy", "cast", "fma", "fold_in"),
    *("key_tensor", "lerp", "mul", "sub", "sum"),
]

_WORD = 2**64 - 1


# Keys


@public
def key_tensor(key: Key) -> torch.Tensor:
    """A key as a tensor, which compiled functions take as an argument.

    Args:
        key: a ``popsr.sr.Key``.
    Returns:
        int64 ``[2]``.
    Raises:
        TypeError: it is not a key.
    """
    if not is_a(key, Key):
        raise ArgumentTypeError(f"key_tensor: not a key, got {type_name(key)}, expected popsr.sr.Key(seed)")
    return torch.tensor([word - 2**64 if word >> 63 else word for word in key.words])


def _eager_key(key: torch.Tensor) -> Key:
    lo, hi = (int(word) & _WORD for word in key.tolist())
    return _key(lo, hi, "popsr.sr.torch.key_tensor(...)")


def _derive(key: torch.Tensor, data: int, step: bool) -> torch.Tensor:
    return key_tensor(_eager_key(key).at(data) if step else _eager_key(key).fold_in(data))


@torch.library.custom_op("popsr_sr::derive", mutates_args=())  # type: ignore[untyped-decorator, unused-ignore]
def _derive_op(key: torch.Tensor, data: int, step: bool) -> torch.Tensor:
    return _derive(key, data, step)


@torch.library.custom_op("popsr_sr::derive_tensor", mutates_args=())  # type: ignore[untyped-decorator, unused-ignore]
def _derive_tensor_op(key: torch.Tensor, data: torch.Tensor, step: bool) -> torch.Tensor:
    return _derive(key, int(data), step)


@torch.library.custom_op("popsr_sr::derive_text", mutates_args=())  # type: ignore[untyped-decorator, unused-ignore]
def _derive_text_op(key: torch.Tensor, text: str) -> torch.Tensor:
    return key_tensor(_eager_key(key).fold_in(text))


for _op in (_derive_op, _derive_tensor_op, _derive_text_op):
    _op.register_fake(lambda key, *_: torch.empty_like(key))


@public
def at(key: torch.Tensor, step: int | torch.Tensor) -> torch.Tensor:
    """``Key.at`` of a key that is a tensor.

    Args:
        key: of :func:`key_tensor`.
        step: an integer, or a tensor with one, for which nothing is compiled again.
    """
    _check_key("at", key)
    return _derived(key, step, True)


@public
def fold_in(key: torch.Tensor, data: int | str | torch.Tensor) -> torch.Tensor:
    """``Key.fold_in`` of a key that is a tensor.

    Args:
        key: of :func:`key_tensor`.
        data: a text, an integer, or a tensor with one.
    """
    _check_key("fold_in", key)
    return _derived(key, data, False)


def _derived(key: torch.Tensor, data: Any, step: bool) -> torch.Tensor:
    result: torch.Tensor
    if key.device.type != "cpu":
        result = of_torch.derived(key, data, step)
    elif isinstance(data, str) and not step:
        result = _derive_text_op(key, data)
    elif isinstance(data, torch.Tensor):
        result = _derive_tensor_op(key, data, step)
    else:
        result = _derive_op(key, data, step)
    return result


def _check_key(op: str, key: Any) -> None:
    if not isinstance(key, torch.Tensor):
        got = "none" if key is REQUIRED or key is None else type_name(key)
        raise ArgumentTypeError(
            f"{op}: key is missing or of the wrong type, got {got}, expected popsr.sr.torch.key_tensor(key)"
        )
    if key.shape != (2,) or key.dtype != torch.int64:
        raise ArgumentTypeError(
            f"{op}: key is not a key, got {key.dtype} of {tuple(key.shape)}, expected popsr.sr.torch.key_tensor(key)"
        )


# The operator


@torch.library.custom_op("popsr_sr::apply", mutates_args=())  # type: ignore[untyped-decorator, unused-ignore]
def _apply_op(
    op: str,
    x: torch.Tensor,
    y: torch.Tensor | None,
    z: torch.Tensor | None,
    alpha: float | None,
    key: torch.Tensor,
    dtype: torch.dtype,
    axes: Sequence[int],
    mode: str,
    overflow: str,
    offset: int,
) -> torch.Tensor:
    operands = [each for each in (x, y, z) if each is not None]
    factors = () if alpha is None else (alpha,)
    options: dict[str, Any] = {"key": _eager_key(key), "mode": mode, "overflow": overflow, "offset": offset}
    result: torch.Tensor = call_by_name(op, operands, factors, dtype, tuple(axes), **options)
    return result


@_apply_op.register_fake  # type: ignore[untyped-decorator, unused-ignore]
def _fake(_op: str, x: Any, y: Any, z: Any, _alpha: Any, _key: Any, dtype: Any, axes: Any, *_: Any) -> Any:
    broadcast: Any = torch.broadcast_shapes
    shape = broadcast(*(each.shape for each in (x, y, z) if each is not None))
    return x.new_empty([extent for k, extent in enumerate(shape) if k not in axes], dtype=dtype)


def _map(
    _info: Any,
    in_dims: Any,
    op: str,
    x: Any,
    y: Any,
    z: Any,
    alpha: Any,
    key: Any,
    dtype: Any,
    axes: Any,
    *rest: Any,
) -> Any:
    """The mapped axis is the first one of the array that is rounded."""
    of_torch.require_one_key(op, in_dims[5])
    moved = [of_torch.in_front(each, dim) for each, dim in zip((x, y, z), in_dims[1:4], strict=True)]
    return _apply_op(op, *moved, alpha, key, dtype, [axis + 1 for axis in axes], *rest), 0


_apply_op.register_vmap(_map)


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    del output
    ctx.op, x, y, z, ctx.alpha, _, _, ctx.axes, *_ = inputs
    ctx.count = len(inputs)
    ctx.save_for_backward(*(each for each in (x, y, z) if each is not None))


def _backward(ctx: Any, grad: Any) -> Any:
    """Straight-through: the gradients of the operation before rounding, in fp32 or wider."""
    saved = ctx.saved_tensors
    wide = torch.float64 if any(x.dtype == torch.float64 for x in saved) else torch.float32
    found = _GRADIENTS[ctx.op](grad.to(wide), ctx.alpha, ctx.axes, *(x.to(wide) for x in saved))
    grads = [g.sum_to_size(x.shape).to(x.dtype) for g, x in zip(found, saved, strict=True)]
    return None, *grads, *[None] * (ctx.count - 1 - len(grads))


def _of_sum(g: Any, _: Any, axes: Any, x: Any) -> Any:
    for axis in axes:
        g = g.unsqueeze(axis)
    return (g.expand_as(x),)


# From the gradient, alpha, axes and operands.
_GRADIENTS: dict[str, Any] = {
    "add": lambda g, *_: (g, g),
    "sub": lambda g, *_: (g, -g),
    "mul": lambda g, _a, _k, x, y: (g * y, g * x),
    "fma": lambda g, _a, _k, x, y, _z: (g * y, g * x, g),
    "axpy": lambda g, a, *_: (a * g, g),
    "lerp": lambda g, _a, _k, x, y, t: (g * (1 - t), g * t, g * (y - x)),
    "addcmul": lambda g, a, _k, _x, s, t: (g, a * g * t, a * g * s),
    "addcdiv": lambda g, a, _k, _x, s, t: (g, a * g / t, -a * g * s / (t * t)),
    "cast": lambda g, *_: (g,),
    "sum": _of_sum,
}
_apply_op.register_autograd(_backward, setup_context=_setup)


# Functions


def _apply(
    op: str,
    operands: Sequence[Any],
    alpha: float | None = None,
    dtype: Any = None,
    axes: Sequence[int] = (),
    /,
    *,
    key: Any = REQUIRED,
    mode: Mode = "sr",
    overflow: Overflow = "ieee",
    offset: int = 0,
) -> torch.Tensor:
    _check_key(op, key)
    if not isinstance(operands[0], torch.Tensor):
        raise ArgumentTypeError(f"{op}: the first operand is not a tensor, got {type_name(operands[0])}")
    tensors = [x if isinstance(x, torch.Tensor) else torch.tensor(x, dtype=torch.float64) for x in operands]
    rank = max(x.dim() for x in tensors)
    aligned = [x.reshape((1,) * (rank - x.dim()) + tuple(x.shape)) for x in tensors]
    form = operands[0].dtype if dtype is None else dtype
    x, y, z = (*aligned, None, None)[:3]
    result: torch.Tensor = _apply_op(op, x, y, z, alpha, key, form, list(axes), mode, overflow, offset)
    return result


@public
@takes_keywords_of(_apply)
def add(x: Any, y: Any, *, portable: bool = False, **options: Unpack[TracedOptions]) -> torch.Tensor:
    """``popsr.sr.add``, also in ``torch.compile``, with gradients, and under ``vmap``.

    The gradients are straight-through: those of the sum before rounding, in fp32 (fp64 if an operand is). Under
    ``vmap`` the mapped axis is the first one of the array that is rounded, whose element i draws number i.

    Args:
        x: tensor; the result has its format.
        y: tensor on the same device, or a number, which is a double.
        key: of :func:`key_tensor`, :func:`at` or :func:`fold_in`.
        mode: this and all that follows is as in ``popsr.sr.add``.
        overflow: what becomes of results that are too large.
        offset: number of the first element.
        portable: by torch's own operations on integers, as tensors that are not on the CPU are always added, with the
            bits of the core. What is compiled for the CPU calls the core.
    Raises:
        TypeError, ValueError: as ``popsr.sr.add``.
    """
    return _add("add", x, y, portable, **options)


@public
@takes_keywords_of(_apply)
def sub(x: Any, y: Any, *, portable: bool = False, **options: Unpack[TracedOptions]) -> torch.Tensor:
    """``popsr.sr.sub``; arguments as in :func:`add`."""
    return _add("sub", x, y, portable, **options)


def _add(op: str, x: Any, y: Any, portable: bool, **options: Unpack[TracedOptions]) -> torch.Tensor:
    if isinstance(x, torch.Tensor) and _is_portable(op, portable, x):
        return of_torch.add(op, x, y, *_read_rounding(op, **options))
    return _apply(op, (x, y), **options)


def _is_portable(op: str, portable: bool, x: torch.Tensor) -> bool:
    """True where the core is not called: what is compiled for the CPU calls it."""
    asked = read_flag(f"{op}: portable", portable) and not torch.compiler.is_compiling()
    return asked or x.device.type != "cpu"


def _read_rounding(
    op: str, *, key: Any = REQUIRED, mode: Mode = "sr", overflow: Overflow = "ieee", offset: int = 0
) -> tuple[Any, ...]:
    _check_key(op, key)
    return key, *read_rounding(op, mode, overflow, offset)


@public
@takes_keywords_of(_apply)
def mul(x: Any, y: Any, **options: Unpack[TracedOptions]) -> torch.Tensor:
    """``popsr.sr.mul``; arguments as in :func:`add`."""
    return _apply("mul", (x, y), **options)


@public
@takes_keywords_of(_apply)
def fma(x: Any, y: Any, z: Any, **options: Unpack[TracedOptions]) -> torch.Tensor:
    """``popsr.sr.fma``: x * y + z, rounded once; arguments as in :func:`add`."""
    return _apply("fma", (x, y, z), **options)


@public
@takes_keywords_of(_apply)
def axpy(alpha: float, x: Any, y: Any, **options: Unpack[TracedOptions]) -> torch.Tensor:
    """``popsr.sr.axpy``: alpha * x + y, rounded once; arguments as in :func:`add`."""
    return _apply("axpy", (x, y), read_number("axpy: alpha", alpha), **options)


@public
@takes_keywords_of(_apply)
def lerp(x: Any, y: Any, t: Any, **options: Unpack[TracedOptions]) -> torch.Tensor:
    """``popsr.sr.lerp``: x + t * (y - x), rounded once; arguments as in :func:`add`."""
    return _apply("lerp", (x, y, t), **options)


@public
@takes_keywords_of(_apply)
def addcmul(x: Any, t1: Any, t2: Any, alpha: float = 1.0, **options: Unpack[TracedOptions]) -> torch.Tensor:
    """``popsr.sr.addcmul``: x + alpha * t1 * t2, rounded once; arguments as in :func:`add`."""
    scale = read_number("addcmul: alpha", alpha)
    return _apply("addcmul", (x, t1, t2), scale, **options)


@public
@takes_keywords_of(_apply)
def addcdiv(x: Any, t1: Any, t2: Any, alpha: float = 1.0, **options: Unpack[TracedOptions]) -> torch.Tensor:
    """``popsr.sr.addcdiv``: x + alpha * t1 / t2, rounded once; arguments as in :func:`add`."""
    scale = read_number("addcdiv: alpha", alpha)
    return _apply("addcdiv", (x, t1, t2), scale, **options)


@public
@takes_keywords_of(_apply)
def cast(x: Any, dtype: Any, *, portable: bool = False, **options: Unpack[TracedOptions]) -> torch.Tensor:
    """``popsr.sr.cast``: x in another format, on any device.

    Args:
        x: tensor of floats.
        dtype: a dtype of torch, or a name.
        portable: by torch's own operations on integers, as tensors that are not on the CPU are always cast, with the
            bits of the core. What is compiled for the CPU calls the core.
        **options: as in :func:`add`.
    Raises:
        TypeError, ValueError: as ``popsr.sr.cast``.
    """
    form = _read_dtype("cast", dtype)
    if isinstance(x, torch.Tensor) and _is_portable("cast", portable, x):
        return of_torch.cast(x, form, *_read_rounding("cast", **options))
    return _apply("cast", (x,), None, form, **options)


@public
@takes_keywords_of(_apply)
def sum(
    x: Any, dtype: Any = None, *, axis: int | tuple[int, ...] | None = None, **options: Unpack[TracedOptions]
) -> torch.Tensor:
    """``popsr.sr.sum``: a running sum, rounded after each element; arguments as there and in :func:`add`."""
    form = None if dtype is None else _read_dtype("sum", dtype)
    axes = _sum._read_axes(axis, x.dim()) if isinstance(x, torch.Tensor) else ()
    return _apply("sum", (x,), None, form, axes, **options)


def _read_dtype(op: str, dtype: Any) -> Any:
    return dtype if isinstance(dtype, torch.dtype) else getattr(torch, read_format(op, dtype).name)
