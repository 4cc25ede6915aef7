"""Updates of variables and accumulators, in place; each returns an alias of ``t``.

``X`` is converted to the type that ``t`` computes in (float32 for narrow floats), and the result is rounded once.
Shapes are equal. A factor is a number or a tensor of one element, and rounded to that type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from popsr._calls import explain_calls
from popsr._emit import emit, number, tensor
from popsr._shown import shown
from popsr._suggestions import unknown_attribute
from popsr.errors import ArgumentTypeError
from popsr.ops.var_updates_optimisers import (
    OptimizerValue,
    adam_updater,
    adam_var_update,
    adamax_updater,
    create_adamupdater,
    handle_optimizer_value,
    lamb_updater,
    weight_decay_is_required,
)
from popsr.tensor import Tensor

__all__ = [
    "OptimizerValue",
    "accumulate_",
    "accumulate_mean_",
    "accumulate_moving_average_",
    "accumulate_moving_average_square_",
    "accumulate_square_",
    "accumulator_scale_",
    "accumulator_zero_",
    "adam_updater",
    "adam_var_update",
    "adamax_updater",
    "copy_var_update_",
    "create_adamupdater",
    "handle_optimizer_value",
    "lamb_updater",
    "sparse_accumulate_",
    "weight_decay_is_required",
]


def accumulate_(t: Tensor, X: Tensor, f: float | Tensor | None = None) -> Tensor:
    """``t + f * X``; the number 0 leaves ``t`` alone, whatever ``X`` holds.

    Args:
        t: what is modified.
        X: what is added.
        f: a number or a tensor of one element. Default: 1.
    Returns:
        An alias of ``t``.
    Raises:
        ShapeError: the shapes differ, or the factor has not one element.
        GraphError: ``t`` is a constant.
    """
    return emit("accumulate_", {"t": t, "X": X, "f": tensor(f)}, f=number(f))


def accumulate_mean_(t: Tensor, X: Tensor, step: float | Tensor) -> Tensor:
    """Running mean: ``(1 - b) * t + b * X`` with ``b = 1 / (step + 1)``; ``X`` at step 0, whatever ``t`` holds.

    Args:
        t: what is modified.
        X: the next value.
        step: how many values ``t`` already is the mean of: a number or a tensor of one element.
    Returns:
        An alias of ``t``.
    Raises:
        ShapeError: the shapes differ, or the factor has not one element.
        GraphError: ``t`` is a constant.
    """
    return emit("accumulate_mean_", {"t": t, "X": X, "step": tensor(step)}, step=number(step))


def accumulate_square_(t: Tensor, X: Tensor, f: float | Tensor = 1.0) -> Tensor:
    """``t + f * X**2``; the number 0 leaves ``t`` alone, whatever ``X`` holds.

    Args:
        t: what is modified.
        X: what is squared and added.
        f: a number or a tensor of one element.
    Returns:
        An alias of ``t``.
    Raises:
        ShapeError: the shapes differ, or the factor has not one element.
        GraphError: ``t`` is a constant.
    """
    return emit("accumulate_square_", {"t": t, "X": X, "f": tensor(f)}, f=number(f))


def accumulate_moving_average_(t: Tensor, X: Tensor, f: float | Tensor) -> Tensor:
    """``f * t + (1 - f) * X``.

    Args:
        t: what is modified.
        X: the next value.
        f: how much of ``t`` stays: a number or a tensor of one element.
    Returns:
        An alias of ``t``.
    Raises:
        ShapeError: the shapes differ, or the factor has not one element.
        DTypeError: ``t`` is not floating.
        GraphError: ``t`` is a constant.
    """
    return emit("accumulate_moving_average_", {"t": t, "X": X, "f": tensor(f)}, f=number(f))


def accumulate_moving_average_square_(t: Tensor, X: Tensor, f: float | Tensor) -> Tensor:
    """``f * t + (1 - f) * X**2``.

    Args:
        t: what is modified.
        X: the next value, which is squared.
        f: how much of ``t`` stays: a number or a tensor of one element.
    Returns:
        An alias of ``t``.
    Raises:
        ShapeError: the shapes differ, or the factor has not one element.
        DTypeError: ``t`` is not floating.
        GraphError: ``t`` is a constant.
    """
    return emit("accumulate_moving_average_square_", {"t": t, "X": X, "f": tensor(f)}, f=number(f))


def sparse_accumulate_(
    t: Tensor,
    X: Tensor,
    indices: Tensor,
    axis: int = 0,
    f: float | Tensor | None = None,
    W: Tensor | None = None,
) -> Tensor:
    """Add ``f * X`` to the elements of an axis that ``indices`` name, as the gradient of a ``gather`` does.

    What meets at one element is added in ascending order of its position in ``indices``, in the type that ``t``
    computes in; the result is rounded once. All other elements keep their bits. The number 0 as factor leaves ``t``
    alone.

    Args:
        t: what is modified, shape ``[..., n, ...]``.
        X: what is added: the shape of ``gather(t, indices, axis)``, or that with the indices flattened.
        indices: integers of any shape.
        axis: the axis of ``t`` that they address.
        f: a number or a tensor of one element. Default: 1.
        W: a weight whose layout ``t`` is to have: accepted for PopXL programs; its value has no effect.
    Returns:
        An alias of ``t``.
    Raises:
        OutOfRangeError: when the program runs: an index is not one of 0 to n - 1; nothing is written.
        AttributeValueError: there is no such axis.
        ShapeError: the shapes do not fit, or the factor has not one element.
        DTypeError: the indices are not integers.
        GraphError: ``t`` is a constant.
    """
    if W is not None and not isinstance(W, Tensor):
        raise ArgumentTypeError(
            f"sparse_accumulate_: W is not a Tensor, got {type(W).__name__} {shown(W)}, expected a Tensor"
        )
    inputs = {"t": t, "X": X, "indices": indices, "f": tensor(f), "W": tensor(W)}
    return emit("sparse_accumulate_", inputs, axis=axis, f=number(f))


def accumulator_scale_(t: Tensor, f: float | Tensor) -> Tensor:
    """``f * t``; the number 0 writes zeros and so clears NaN and infinities.

    Args:
        t: what is modified.
        f: a number or a tensor of one element.
    Returns:
        An alias of ``t``.
    Raises:
        ShapeError: the factor has not one element.
        GraphError: ``t`` is a constant.
    """
    return emit("accumulator_scale_", {"t": t, "f": tensor(f)}, f=number(f))


def accumulator_zero_(t: Tensor) -> Tensor:
    """Set to zero.

    Args:
        t: what is modified.
    Returns:
        An alias of ``t``.
    Raises:
        GraphError: ``t`` is a constant.
    """
    return emit("accumulator_zero_", {"t": t})


def copy_var_update_(t: Tensor, X: Tensor) -> Tensor:
    """Set to ``X``.

    Args:
        t: what is modified.
        X: the new value.
    Returns:
        An alias of ``t``.
    Raises:
        ShapeError: the shapes differ.
        GraphError: ``t`` is a constant.
    """
    return emit("copy_var_update_", {"t": t, "X": X})


if not TYPE_CHECKING:
    __getattr__ = unknown_attribute(__name__, __all__)
    explain_calls(globals(), __all__)
