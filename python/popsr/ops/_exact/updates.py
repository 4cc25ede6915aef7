"""Updates of variables, and steps of optimisers."""

from __future__ import annotations

from typing import Any

from popsr._support.fields import Numbers
from popsr.ops._exact.elementwise import smaller
from popsr.ops._exact.functions import power, sqrt
from popsr.ops._exact.registry import Exact, Value, exact, numbers, scalar

__all__: list[str] = []


@exact("copy_var_update_")
def copy_var_update(op: Exact, t: Value, x: Value) -> Value:
    return numbers(op, x) if isinstance(t, Numbers) else x


@exact("accumulate_")
def accumulate(op: Exact, t: Numbers, x: Value, f: Value | None = None) -> Numbers:
    return t + numbers(op, x) * scalar(op, "f", f, 1)


@exact("accumulate_square_")
def accumulate_square(op: Exact, t: Numbers, x: Value, f: Value | None = None) -> Numbers:
    return t + numbers(op, x) * numbers(op, x) * scalar(op, "f", f, 1)


@exact("accumulate_mean_")
def accumulate_mean(op: Exact, t: Numbers, x: Value, step: Value | None = None) -> Numbers:
    share = (scalar(op, "step", step) + op.number(1)).inverse()
    return t * (op.number(1) - share) + numbers(op, x) * share


@exact("accumulate_moving_average_")
def moving_average(op: Exact, t: Numbers, x: Value, f: Value | None = None) -> Numbers:
    share = scalar(op, "f", f)
    return t * share + numbers(op, x) * (op.number(1) - share)


@exact("accumulate_moving_average_square_")
def moving_average_square(op: Exact, t: Numbers, x: Value, f: Value | None = None) -> Numbers:
    share = scalar(op, "f", f)
    return t * share + numbers(op, x) * numbers(op, x) * (op.number(1) - share)


@exact("accumulator_scale_")
def accumulator_scale(op: Exact, t: Numbers, f: Value | None = None) -> Numbers:
    factor = scalar(op, "f", f, 1)
    return op.full(0) if factor.is_zero() else t * factor


@exact("accumulator_zero_")
def accumulator_zero(op: Exact, _: Numbers) -> Numbers:
    return op.full(0)


@exact("lamb_square")
def lamb_square(_: Exact, t: Numbers) -> Numbers:
    return (t * t).sum(list(range(t.ndim)))


@exact("adam_updater", "lamb_updater", "adamax_updater")
def updater(
    op: Exact,
    first: Numbers,
    second: Numbers,
    weight: Numbers | None = None,
    time: Value | None = None,
    *factors: Value | None,
) -> list[Any]:
    """Step of Adam, and the time that counts it: m / (sqrt(v) + eps) + decay weight, of adamax m / (v + eps)."""
    names = ["weight_decay", "beta1", *(() if op.kind == "adamax_updater" else ("beta2",)), "epsilon"]
    given = dict(zip(names, [*factors, *[None] * len(names)], strict=False))
    value = {name: scalar(op, name, given[name]) for name in names}
    counted: Any = time
    if counted is not None:
        counted = counted + (op.number(1) if isinstance(counted, Numbers) else counted.dtype.type(1))
    if counted is not None:
        steps = numbers(op, counted).reshape(())
        first = first / (op.number(1) - power(value["beta1"], steps))
        if "beta2" in value:
            second = second / (op.number(1) - power(value["beta2"], steps))
    step = first / ((sqrt(second) if "beta2" in value else second) + value["epsilon"])
    if weight is not None:
        step = step + weight * value["weight_decay"]
    return [step] if counted is None else [step, counted]


@exact("adam_var_update")
def adam_var_update(op: Exact, t: Numbers, x: Value, r1: Value, r2: Value, *factors: Value | None) -> Numbers:
    rate, bound = [*factors, None, None][:2]
    step = scalar(op, "learning_rate", rate)
    if bound is not None or op["max_weight_norm"] is not None:
        most, norm, size = scalar(op, "max_weight_norm", bound), scalar(op, "r1", r1), scalar(op, "r2", r2)
        if not (norm.is_zero() or size.is_zero() or most.is_zero()):
            step = step * smaller(op, sqrt(norm), most) / sqrt(size)
    return t - step * numbers(op, x)
