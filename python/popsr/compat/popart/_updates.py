"""Ops of the optimisers' steps, on the variables of a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor, constant
from popsr.compat._objects.types import DataType
from popsr.compat.popart._optimisers import (
    SGD,
    Adam,
    AdamMode,
    Adaptive,
    AdaptiveMode,
    Optimizer,
    OptimizerValue,
    WeightDecayMode,
)
from popsr.ops import var_updates

__all__ = ["State", "states_of", "update"]


class State(NamedTuple):
    """A tensor that an optimiser keeps for a weight.

    Attributes:
        dtype: its dtype.
        initial: the value of all its elements before the first step.
        shape: its shape; None for the weight's.
    """

    dtype: dtypes.dtype
    initial: float = 0.0
    shape: tuple[int, ...] | None = None


States = dict[str, State]
"""States by the prefix of their ids."""


def states_of(optimizer: Optimizer, id: str, kind: dtypes.dtype) -> States:
    """The states that an optimiser keeps for a weight."""

    def like(given: DataType, initial: float = 0.0) -> State:
        return State(kind if given is DataType.UNDEFINED else given.dtype, initial)

    if isinstance(optimizer, SGD):
        return {"Accl___": like(optimizer.accl1_type)} if _has(optimizer, "momentum", id) else {}
    assert isinstance(optimizer, (Adam, Adaptive))
    first = float(isinstance(optimizer, Adaptive) and optimizer.rmsprop_tf_variant)  # TensorFlow begins at 1
    states: States = {"Accl1___": like(optimizer.accl1_type, first)}
    if isinstance(optimizer, Adam) or optimizer.mode in (AdaptiveMode.CenteredRMSProp, AdaptiveMode.AdaDelta):
        states["Accl2___"] = like(optimizer.accl2_type)
    if isinstance(optimizer, Adam):
        if optimizer.mode not in (AdamMode.AdamNoBias, AdamMode.LambNoBias):
            states["Step___"] = State(dtypes.float32, shape=(1,))
    elif _has(optimizer, "momentum", id):
        states["Accl3___"] = like(optimizer.accl3_type)
    return states


def update(
    optimizer: Optimizer,
    id: str,
    w: Tensor,
    gradient: Tensor,
    states: Mapping[str, Tensor],
    scalars: Mapping[str, Tensor],
) -> None:
    """Append the update of a weight in place.

    Args:
        optimizer: the formula.
        id: the weight's id.
        w: the weight.
        gradient: its gradient, reduced, not scaled, of the type that ``w`` computes in.
        states: what ``states_of`` says, by prefix.
        scalars: tensors of values that may change, by their ids.
    """

    def value(name: str) -> Any:
        found: OptimizerValue = optimizer.value(name, id)
        if found.isConst:
            return constant(np.float64(found.val), gradient.dtype)
        return ops.cast(scalars[optimizer.tensor_name(name, id)], gradient.dtype)

    rules: dict[type, Callable[..., None]] = {SGD: _sgd, Adam: _adam, Adaptive: _adaptive}
    rule = next(each for kind, each in rules.items() if isinstance(optimizer, kind))
    rule(optimizer, id, w, gradient, states, value)


def _sgd(o: SGD, id: str, w: Tensor, g: Tensor, states: Mapping[str, Tensor], value: Any) -> None:
    wide = ops.cast(w, g.dtype)
    g = _decayed(o, id, g, wide, value)
    step = g * (1.0 - value("dampening")) if _has(o, "dampening", id) else g
    if "Accl___" in states:
        step = _moved(states["Accl___"], step, value)
    if o.nesterov:  # without momentum the gradient as it is
        step = g + value("momentum") * step if "Accl___" in states else g
    _write(w, wide - value("learningRate") * step)


def _adam(o: Adam, id: str, w: Tensor, g: Tensor, states: Mapping[str, Tensor], value: Any) -> None:
    decay = value("weightDecay") if _has(o, "weightDecay", id) else None
    if decay is not None and o.weight_decay_mode is WeightDecayMode.L2Regularization:
        g, decay = g + decay * ops.cast(w, g.dtype), None
    first, second, count = states["Accl1___"], states["Accl2___"], states.get("Step___")
    beta1, beta2 = value("beta1"), value("beta2")
    var_updates.accumulate_moving_average_(first, g, beta1)
    if o.mode is AdamMode.AdaMax:
        largest = ops.maximum(beta2 * ops.cast(second, g.dtype), ops.abs(g))
        var_updates.copy_var_update_(second, ops.cast(largest, second.dtype))
        x = var_updates.adamax_updater(first, second, w, count, decay, beta1, value("eps"))
    else:
        var_updates.accumulate_moving_average_square_(second, g, beta2)
        lamb = o.mode in (AdamMode.Lamb, AdamMode.LambNoBias)
        updater = var_updates.lamb_updater if lamb else var_updates.adam_updater
        betas = {} if count is None else {"beta1": beta1, "beta2": beta2}
        x = updater(first, second, w, count, decay, **betas, epsilon=value("eps"))
    if o.mode in (AdamMode.Lamb, AdamMode.LambNoBias):
        norms = ops.lamb_square(w), ops.lamb_square(x)
        var_updates.adam_var_update(w, x, *norms, value("learningRate"), value("maxWeightNorm"))
    else:
        zero = constant(np.float32(0), dtypes.float32)
        var_updates.adam_var_update(w, x, zero, zero, value("learningRate"))


def _adaptive(o: Adaptive, id: str, w: Tensor, g: Tensor, states: Mapping[str, Tensor], value: Any) -> None:
    wide = ops.cast(w, g.dtype)
    if o.weight_decay_mode is WeightDecayMode.L2Regularization:
        g = _decayed(o, id, g, wide, value)
    squares, alpha, eps = states["Accl1___"], value("alpha"), value("eps")
    if o.mode is AdaptiveMode.AdaGrad:
        var_updates.accumulate_square_(squares, g)
    else:
        var_updates.accumulate_moving_average_square_(squares, g, alpha)
    seen = ops.cast(squares, g.dtype)
    if o.mode is AdaptiveMode.AdaDelta:
        steps = states["Accl2___"]
        step = g * ops.sqrt(ops.cast(steps, g.dtype) + eps) / ops.sqrt(seen + eps)
        var_updates.accumulate_moving_average_square_(steps, step, alpha)
    else:
        if o.mode is AdaptiveMode.CenteredRMSProp:
            mean = states["Accl2___"]
            var_updates.accumulate_moving_average_(mean, g, alpha)
            seen = seen - ops.square(ops.cast(mean, g.dtype))
        step = g / (ops.sqrt(seen + eps) if o.rmsprop_tf_variant else ops.sqrt(seen) + eps)
    decays, rate = o.weight_decay_mode is WeightDecayMode.Decay, value("learningRate")
    moved = states.get("Accl3___")
    if moved is not None and o.rmsprop_tf_variant:  # the momentum is of steps that have their rate
        step = _moved(moved, rate * step, value)
        step = step + rate * value("weightDecay") * wide if decays and _has(o, "weightDecay", id) else step
    else:
        step = step if moved is None else _moved(moved, step, value)
        step = rate * (_decayed(o, id, step, wide, value) if decays else step)
    _write(w, wide - step)


def _moved(kept: Tensor, step: Tensor, value: Any) -> Tensor:
    """The momentum with a step, which is kept too."""
    step = value("momentum") * ops.cast(kept, step.dtype) + step
    var_updates.copy_var_update_(kept, ops.cast(step, kept.dtype))
    return step


def _decayed(o: Optimizer, id: str, g: Tensor, wide: Tensor, value: Any) -> Tensor:
    return g + value("weightDecay") * wide if _has(o, "weightDecay", id) else g


def _write(w: Tensor, new: Tensor) -> None:
    """The new weight is rounded once."""
    var_updates.copy_var_update_(w, ops.cast(new, w.dtype))


def _has(o: Optimizer, name: str, id: str) -> bool:
    """True if a value is not 0 for ever."""
    found = o.value(name, id)
    return not found.isConst or found.val != 0
