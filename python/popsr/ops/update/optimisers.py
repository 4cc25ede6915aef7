"""Optimiser steps: the updaters compute a step from moments, ``adam_var_update`` takes it.

Arithmetic is in float32, or in float64 where an operand of the result is float64; narrow floats are rounded once, to
nearest or stochastically. Scalars are numbers or tensors of one element, such as what a stream brings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import MutableMapping
from typing import Any, Literal

from popsr._program.building.emit import Inputs, emit, emit_op, number, tensor
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_a, read_choice, read_int, read_number
from popsr._support.text.entry_points import public, public_call
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError
from popsr.ops._facts import public_op

__all__ = [
    "OptimizerValue",
    "adam_updater",
    "adam_var_update",
    "adamax_updater",
    "create_adamupdater",
    "handle_optimizer_value",
    "lamb_updater",
    "weight_decay_is_required",
]

Scalar = float | Tensor
AdamMode = Literal["adam", "lamb", "adamax"]


@public
@dataclasses.dataclass(frozen=True)
class OptimizerValue:
    """A scalar of an optimiser as an op takes it.

    Attributes:
        val: the number; 0 for a tensor.
        is_const: is it a number?
    """

    val: float
    is_const: bool


@public_call
def handle_optimizer_value(f: Any, ins: MutableMapping[int, str], index: int) -> OptimizerValue:
    """Read a scalar that may be a number or a tensor; a tensor joins the op's inputs.

    Args:
        f: the scalar; None counts as a tensor that is not there.
        ins: ids of an op's inputs by position; the id of a tensor is added.
        index: the position of the scalar among them.
    Returns:
        The number, or that it is none.
    Raises:
        TypeError: it is neither a number nor a tensor.
    """
    read_a("handle_optimizer_value: ins", ins, (MutableMapping,))
    index = read_int("handle_optimizer_value: index", index, 0)
    if isinstance(f, Tensor):
        ins[index] = f.id
    elif f is not None:
        return OptimizerValue(read_number("handle_optimizer_value: f", f), True)
    return OptimizerValue(0.0, False)


@public_call
def weight_decay_is_required(weight_decay: Scalar | None) -> bool:
    """True if an updater needs the weight: not for None and 0, but for a tensor.

    Args:
        weight_decay: the scalar.
    """
    if weight_decay is None or isinstance(weight_decay, Tensor):
        return weight_decay is not None
    return read_number("weight_decay", weight_decay) != 0


@public_call
def create_adamupdater(
    acc_first_order: Tensor,
    acc_second_order: Tensor,
    ins: MutableMapping[int, str],
    mode: AdamMode,
    weight: Tensor | None = None,
    time_step: Tensor | None = None,
    weight_decay: Scalar | None = None,
    beta1: Scalar | None = None,
    beta2: Scalar | None = None,
    epsilon: Scalar = 1e-07,
) -> Tensor:
    """Shared implementation of the updaters; ``mode`` selects one.

    Args:
        acc_first_order: first moment.
        acc_second_order: second moment.
        ins: receives the ids of the tensors that the op reads, by their position among its inputs.
        mode: "adam", "lamb" or "adamax".
        weight: see ``adam_updater``, as the following.
        time_step: the counter of steps.
        weight_decay: factor of the weight.
        beta1: decay of the first moment.
        beta2: decay of the second moment; "adamax" has none.
        epsilon: added to the denominator.
    Returns:
        The step.
    Raises:
        AttributeValueError: another mode, or as the updater of that mode.
    """
    read_choice("create_adamupdater", "mode", mode, ("adam", "lamb", "adamax"))
    op = f"{mode}_updater"
    counts = time_step is not None
    inputs: dict[str, Any] = {
        "acc_first_order": acc_first_order,
        "acc_second_order": acc_second_order,
        "weight": _optional(op, "weight", weight),
        "time_step": _optional(op, "time_step", time_step),
    }
    if weight is None and weight_decay_is_required(weight_decay):
        raise AttributeValueError(
            f"{op}: weight is missing, got weight_decay {shown(weight_decay)}, expected the weight that decays"
        )
    if not weight_decay_is_required(weight_decay):
        inputs["weight"], weight_decay = tensor(None), None
    scalars = {"weight_decay": weight_decay, "beta1": beta1, "beta2": beta2, "epsilon": epsilon}
    if mode == "adamax":
        del scalars["beta2"]
    if not counts:  # without correction they have no influence
        scalars |= {name: None for name in scalars if name.startswith("beta")}
    inputs |= {name: tensor(value) for name, value in scalars.items()}
    for position, value in enumerate(inputs.values()):
        if isinstance(value, Tensor):
            ins[position] = value.id
    return _first_of(op, inputs, {name: number(value) for name, value in scalars.items()}, 1 + counts)


@public_op
def adam_updater(
    acc_first_order: Tensor,
    acc_second_order: Tensor,
    weight: Tensor | None = None,
    time_step: Tensor | None = None,
    weight_decay: Scalar | None = None,
    beta1: Scalar | None = None,
    beta2: Scalar | None = None,
    epsilon: Scalar = 1e-07,
) -> Tensor:
    """The step of Adam: ``m' / (sqrt(v') + epsilon) + weight_decay * weight``.

    With a time step, that is increased by 1 in place first, and moments are corrected: ``m' = m / (1 - beta1**t)``
    and ``v' = v / (1 - beta2**t)``. Powers of float64 moments are float64, else float32 (beta rounded first); the
    corrections are rounded to the dtypes of ``m`` and ``v``. Without one, ``m' = m`` and ``v' = v``.

    Args:
        acc_first_order: first moment m.
        acc_second_order: second moment v, of its shape; dtypes may differ.
        weight: what decays, of that shape; read only where ``weight_decay`` is not 0.
        time_step: how many steps were taken: a wide float or an integer, one element. It is modified.
        weight_decay: factor of the weight. Default: 0.
        beta1: decay of the first moment, needed with ``time_step``.
        beta2: decay of the second moment, needed with ``time_step``.
        epsilon: added to the denominator.
    Returns:
        The step, of the dtype and shape of ``weight`` where that is read, else of ``acc_first_order``.
    Raises:
        AttributeValueError: ``weight_decay`` without ``weight``, or ``time_step`` without both betas.
        ShapeError: shapes differ, or a scalar has several elements.
        DTypeError: a moment or the weight is not floating, or the time step is a narrow float.
        GraphError: ``time_step`` is a constant.
    Source:
        Kingma and Ba, Adam: A Method for Stochastic Optimization, 2014, arXiv:1412.6980; decay of weights as
        Loshchilov and Hutter, 2017, arXiv:1711.05101.
    Example:
        >>> step = ops.var_updates.adam_updater
        >>> evaluate(step, [0.5, -0.5], [0.25, 1.0], epsilon=0.0)
        array([ 1. , -0.5], dtype=float32)
    """
    return create_adamupdater(
        acc_first_order, acc_second_order, {}, "adam", weight, time_step, weight_decay, beta1, beta2, epsilon
    )


@public_op
def lamb_updater(
    acc_first_order: Tensor,
    acc_second_order: Tensor,
    weight: Tensor | None = None,
    time_step: Tensor | None = None,
    weight_decay: Scalar | None = None,
    beta1: Scalar | None = None,
    beta2: Scalar | None = None,
    epsilon: Scalar = 1e-07,
) -> Tensor:
    """The step of LAMB before it is scaled: the formula of ``adam_updater``.

    ``adam_var_update`` scales it by the norms of weight and step, which ``lamb_square`` and a sum over replicas give.

    Args:
        acc_first_order: first moment.
        acc_second_order: second moment.
        weight: what decays.
        time_step: how many steps were taken; modified.
        weight_decay: factor of the weight. Default: 0.
        beta1: decay of the first moment, needed with ``time_step``.
        beta2: decay of the second moment, needed with ``time_step``.
        epsilon: added to the denominator.
    Returns:
        The step, as of ``adam_updater``.
    Raises:
        AttributeValueError: as ``adam_updater``.
        ShapeError: as ``adam_updater``.
        DTypeError: as ``adam_updater``.
        GraphError: as ``adam_updater``.
    Source:
        You et al., Large Batch Optimization for Deep Learning, 2019, arXiv:1904.00962.
    Example:
        >>> step = ops.var_updates.lamb_updater
        >>> evaluate(step, [0.5, -0.5], [0.25, 1.0], epsilon=0.0)
        array([ 1. , -0.5], dtype=float32)
    """
    return create_adamupdater(
        acc_first_order, acc_second_order, {}, "lamb", weight, time_step, weight_decay, beta1, beta2, epsilon
    )


@public_op
def adamax_updater(
    acc_first_order: Tensor,
    acc_second_order: Tensor,
    weight: Tensor | None = None,
    time_step: Tensor | None = None,
    weight_decay: Scalar | None = None,
    beta1: Scalar = 0.9,
    epsilon: Scalar = 1e-07,
) -> Tensor:
    """The step of AdaMax: ``(m / (1 - beta1**t)) / (v + epsilon) + weight_decay * weight``.

    Here v is the running maximum of absolute gradients: it has no root and no correction. The time step is increased
    by 1 in place first; powers and corrections are as in ``adam_updater``.

    Args:
        acc_first_order: first moment m.
        acc_second_order: the maximum v.
        weight: what decays.
        time_step: how many steps were taken; modified. It must be given.
        weight_decay: factor of the weight. Default: 0.
        beta1: decay of the first moment.
        epsilon: added to the denominator.
    Returns:
        The step, as of ``adam_updater``.
    Raises:
        AttributeValueError: ``time_step`` or ``beta1`` is missing, or ``weight_decay`` is given without ``weight``.
        ShapeError: as ``adam_updater``.
        DTypeError: as ``adam_updater``.
        GraphError: as ``adam_updater``.
    Source:
        Kingma and Ba, Adam: A Method for Stochastic Optimization, 2014, arXiv:1412.6980, section 7.1.
    Example:
        >>> step = ops.var_updates.adamax_updater
        >>> evaluate(step, [0.5, -0.5], [0.25, 1.0], time_step=np.array([0], np.int32), beta1=0.5, epsilon=0.0)
        array([ 4., -1.], dtype=float32)
    """
    return create_adamupdater(
        acc_first_order,
        acc_second_order,
        {},
        "adamax",
        weight,
        time_step,
        weight_decay,
        beta1,
        epsilon=epsilon,
    )


@public_op
def adam_var_update(
    t: Tensor,
    x: Tensor,
    r1: Tensor,
    r2: Tensor,
    learning_rate: Scalar | None = None,
    max_weight_norm: Scalar | None = None,
) -> Tensor:
    """``t - learning_rate * ratio * x``, in place although the name does not end in an underscore.

    The ratio is ``min(sqrt(r1), max_weight_norm) / sqrt(r2)``, and 1 where one of the three is 0 or no greatest norm is
    given. Scalars are computed in the type that ``t`` computes in; ``learning_rate * ratio`` is rounded to it, then its
    product with ``x``, then the sum, once.

    Args:
        t: what is modified.
        x: the step, of the shape of ``t``.
        r1: squared norm of the weight, one element.
        r2: squared norm of the step, one element.
        learning_rate: a number or a tensor of one element; it must be given.
        max_weight_norm: the greatest norm of the weight that counts.
    Returns:
        An alias of ``t``.
    Raises:
        AttributeValueError: ``learning_rate`` is missing.
        ShapeError: shapes differ, or a scalar has several elements.
        DTypeError: ``t`` is not floating, or another operand is of bool or float8.
        GraphError: ``t`` is a constant.
    Source:
        You et al., Large Batch Optimization for Deep Learning, 2019, arXiv:1904.00962.
    Example:
        >>> update = ops.var_updates.adam_var_update
        >>> evaluate(update, [1.0, 2.0], [0.5, 0.5], np.float32(9.0), np.float32(4.0), learning_rate=0.1)
        array([0.95, 1.95], dtype=float32)
    """
    inputs = {"t": t, "x": x, "r1": r1, "r2": r2}
    scalars = {"learning_rate": learning_rate, "max_weight_norm": max_weight_norm}
    return emit(
        "adam_var_update",
        inputs | {name: tensor(value) for name, value in scalars.items()},
        **{name: number(value) for name, value in scalars.items()},
    )


def _optional(op: str, name: str, value: Tensor | None) -> Any:
    """An optional tensor as input: absent for None."""
    if value is None or isinstance(value, Tensor):
        return tensor(value)
    raise ArgumentTypeError(
        f"{op}: {name} is not a Tensor, got {type(value).__name__} {shown(value)}, expected a Tensor"
    )


def _first_of(op: str, inputs: Inputs, attrs: dict[str, Any], outputs: int) -> Tensor:
    """Append an op; its first output."""
    return emit_op(op, inputs, attrs, outputs=outputs)[1][0]
