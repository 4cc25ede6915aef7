"""Reference values of the ops, in NumPy.

Exact oracles compute in the op's compute type (float32 for float16 and bfloat16) or return the exact real result as
float64 rounded to odd; ``round_once`` then rounds to the dtype. Approximate oracles compute in long double; the op's
row states how far the result may be away.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Members = list[list[int]]

# Precision in bits and least exponent of the last place.
PRECISION = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
LEAST_PLACE = {"float64": -1074, "float32": -149, "float16": -24, "bfloat16": -133}


def compute_type(name: str) -> str:
    """Type in which arithmetic on that dtype runs."""
    return "float32" if name in ("float16", "bfloat16") else name


# Rounding


def _to_odd(nearest: Array, rest: Array) -> Array:
    """``nearest`` rounded to odd instead, where the exact value is nearest + rest and |rest| <= ulp / 2."""
    even = (nearest.view(f"u{nearest.dtype.itemsize}") & 1) == 0
    towards = np.where(rest > 0, np.inf, -np.inf).astype(nearest.dtype)
    moved = np.nextafter(nearest, towards)
    return np.where(even & (rest != 0) & np.isfinite(nearest) & np.isfinite(rest), moved, nearest)


def exact_sum(a: Array, b: Array) -> Array:
    """a + b as float64 rounded to odd: later rounding to fewer bits is then correct."""
    with np.errstate(all="ignore"):
        a, b = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(b, np.float64))
        total = np.asarray(a + b)
        part = total - a
        return _to_odd(total, (a - (total - part)) + (b - part))


def round_once(value: Array, name: str) -> Array:
    """``value`` (any float) rounded once to nearest even; other dtypes and equal ones pass."""
    import ml_dtypes

    value = np.asarray(value)
    if name not in PRECISION or value.dtype.name == name or value.dtype.kind != "f":
        return value
    with np.errstate(all="ignore"):
        if name == "float64":
            return value.astype(np.float64)
        wide = value.astype(np.float64)
        single = wide.astype(np.float32)
        if name == "float32":
            return single
        largest = np.finfo(np.float32).max
        overflown = np.isinf(single) & np.isfinite(wide)
        single = np.where(overflown, np.copysign(largest, single), single).astype(np.float32)
        single = _to_odd(single, np.where(np.isfinite(wide), wide - single, 0.0))
        if name == "float16":
            return single.astype(np.float16)
        raw = single.view(np.uint32).astype(np.uint64)
        rounded = ((raw + 0x7FFF + ((raw >> 16) & 1)) >> 16).astype(np.uint16)
        rounded = np.where(np.isnan(single), np.uint16(0x7FC0), rounded)
        return rounded.view(ml_dtypes.bfloat16)


def unit_in_last_place(exact: Array, name: str) -> Array:
    """Spacing of the dtype at ``exact`` (long double)."""
    with np.errstate(all="ignore"):
        _, exponent = np.frexp(np.where(np.isfinite(exact), exact, 1))
        place = np.maximum(exponent - PRECISION[name], LEAST_PLACE[name])
        place = np.where(exact == 0, LEAST_PLACE[name], place)
        return np.ldexp(np.longdouble(1), place)


def ulp_errors(got: Array, exact: Array, name: str) -> Array:
    """|got - exact| in units of the last place of the dtype; 0 for equal infinities and for NaN at NaN."""
    with np.errstate(all="ignore"):
        got, exact = np.asarray(got).astype(np.longdouble), np.asarray(exact, np.longdouble)
        error = np.abs(got - exact) / unit_in_last_place(exact, name)
        limit = (2 - np.ldexp(np.longdouble(1), -PRECISION[name])) * _top_power(name)
        overflows = np.abs(exact) >= limit
        error = np.where(overflows & np.isinf(got) & (np.sign(got) == np.sign(exact)), 0, error)
        error = np.where(np.isnan(exact) & np.isnan(got), 0, error)
        return np.where(np.isnan(error), np.inf, error)


def _top_power(name: str) -> Any:
    return np.ldexp(np.longdouble(1), {"float64": 1023, "float32": 127, "float16": 15, "bfloat16": 127}[name])


# Elementwise


def div(a: Array, b: Array) -> Array:
    """Integers truncate towards zero, x / 0 = 0, the lowest / -1 wraps."""
    if a.dtype.kind == "f":
        with np.errstate(all="ignore"):
            return a / b
    a, b = np.broadcast_arrays(a, b)
    quotients = np.empty(a.shape, dtype=object)
    for at, (x, y) in enumerate(zip(a.flat, b.flat, strict=True)):
        size = abs(int(x)) // abs(int(y)) if y != 0 else 0
        quotients.flat[at] = -size if (x < 0) != (y < 0) else size
    return wrap(quotients, a.dtype.name)


def truncated_mean(t: Array, axis: Any, keepdims: bool) -> Array:
    """Of integers: the exact sum divided by the count, towards zero."""
    total = np.asarray(np.sum(t.astype(object), axis=axis, keepdims=keepdims), dtype=object)
    count = t.size // max(1, total.size)
    whole = np.array([int(v) // count if v >= 0 else -(-int(v) // count) for v in total.flat], dtype=object)
    return wrap(whole.reshape(total.shape), t.dtype.name)


def wrap(values: Array, name: str) -> Array:
    """Python integers modulo 2^bits, in two's complement."""
    itemsize = np.dtype(name).itemsize
    unsigned = np.array([int(v) % (1 << (8 * itemsize)) for v in values.flat], dtype=f"u{itemsize}")
    return unsigned.view(name).reshape(values.shape)


def maximum(*arrays: Array) -> Array:
    """NaN if any is NaN; +0 is more than -0."""
    result = arrays[0]
    for each in arrays[1:]:
        with np.errstate(all="ignore"):
            both_zero = (result == 0) & (each == 0)
            result = np.where(both_zero, result + each, np.maximum(result, each))
    return result


def minimum(*arrays: Array) -> Array:
    """NaN if any is NaN; -0 is less than +0."""
    return (
        -maximum(*(-each for each in arrays))
        if arrays[0].dtype.kind == "f"
        else functools.reduce(np.minimum, arrays)
    )


def relu(t: Array) -> Array:
    """max(t, 0); NaN stays NaN, -0 becomes +0."""
    return np.where(t > 0, t, np.where(t == t, np.zeros_like(t), t))


def absolute(t: Array) -> Array:
    """|t|; the lowest integer wraps."""
    return np.abs(t) if t.dtype.kind != "u" else t


def negate(t: Array) -> Array:
    """-t; integers wrap."""
    return -t if t.dtype.kind == "f" else np.subtract(t.dtype.type(0), t)


def gelu(t: Array) -> Array:
    """The tanh form, without cancellation for negative t."""
    inner = np.sqrt(np.longdouble(8) / _PI) * (t + np.longdouble("0.044715") * t**3)
    return np.where(np.isneginf(t), np.longdouble(-0.0), t / (1 + np.exp(-inner)))


_PI = np.longdouble("3.14159265358979323846264338327950288")


def scaled_add(x: Array, y: Array, a: Any = 1.0, b: Any = 1.0) -> Array:
    """a * x + b * y: each product rounded in the compute type of x, the sum once."""
    wide = x.dtype.type
    with np.errstate(all="ignore"):
        first, second = wide(a) * x, wide(b) * y.astype(x.dtype)
        return add(first, second)


def add(a: Array, b: Array) -> Array:
    """Float32 sums are exact (to odd), so that narrow results are rounded once."""
    if a.dtype == np.float32:
        return exact_sum(a, b)
    with np.errstate(all="ignore"):
        return np.asarray(a + b)


def sub(a: Array, b: Array) -> Array:
    """As ``add``."""
    if a.dtype == np.float32:
        return exact_sum(a, -b)
    with np.errstate(all="ignore"):
        return np.asarray(a - b)


def cast(t: Array, data_type: str) -> Array:
    """Float to integer truncates and saturates, NaN -> 0; integers wrap; to bool: != 0."""
    if data_type == "bool":
        return t != 0
    if data_type in PRECISION:
        if t.dtype.kind == "f":
            return round_once(t, data_type)
        return _round_integers(t, data_type)
    if t.dtype.kind != "f":
        return wrap(np.array([int(v) for v in t.flat], dtype=object).reshape(t.shape), data_type)
    low, high = np.iinfo(data_type).min, np.iinfo(data_type).max
    whole = [0 if v != v else high if v >= high else low if v <= low else int(v) for v in t.flat]
    return np.array(whole, dtype=data_type).reshape(t.shape)


def _round_integers(t: Array, name: str) -> Array:
    """Integers to floats in one rounding: the high and the low 32 bits are exact, their sum is rounded to odd."""
    high = np.array([float((int(v) >> 32) << 32) for v in t.flat])
    low = np.array([float(int(v) & 0xFFFFFFFF) for v in t.flat])
    if name == "float64":
        return (high + low).reshape(t.shape)
    return round_once(exact_sum(high, low), name).reshape(t.shape)


# Reductions, products, losses


def softmax(t: Array, axis: int) -> Array:
    """exp(t - max) / sum."""
    e = np.exp(t - t.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def fma_chain(a: Array, b: Array) -> Array:
    """Product of float32 matrices: one chain of fused multiply-adds a result, over ascending k, from +0."""
    result = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        exact_product = np.outer(a[:, k].astype(np.float64), b[k].astype(np.float64))
        result = exact_sum(exact_product, result).astype(np.float32)
    return result


def least_probability(name: str) -> float:
    """Floor of probabilities in losses."""
    return 6.104e-5 if name == "float16" else 1e-7


def nll_rows(probs: Array, labels: Array, ignore_index: int | None, log_prob: bool, floor: float) -> Array:
    """Loss of each row."""
    flat, classes = probs.reshape(-1, probs.shape[-1]), probs.shape[-1]
    losses = np.zeros(len(flat), np.longdouble)
    for row, label in enumerate(labels.reshape(-1)):
        if ignore_index is not None and label == ignore_index:
            continue
        inside = 0 <= label < classes
        if log_prob and inside:
            losses[row] = -flat[row, label]
        else:
            losses[row] = -np.log(
                max(flat[row, label], np.longdouble(floor)) if inside else np.longdouble(floor)
            )
    return losses.reshape(labels.shape)


def reduce_losses(losses: Array, labels: Array, ignore_index: int | None, reduction: str) -> Array:
    """Mean divides by the rows that are not ignored, at least 1."""
    if reduction == "none":
        return losses
    total = losses.sum()
    return total if reduction == "sum" else total / rows_that_count(labels, ignore_index)


def rows_that_count(labels: Array, ignore_index: int | None) -> int:
    """Divisor of "mean"."""
    return max(1, int(np.sum(labels != ignore_index)) if ignore_index is not None else labels.size)


def nll(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Oracle and bound of nll_loss for a dtype."""
    floor = least_probability(name)

    def oracle(
        probs: Array, labels: Array, ignore_index: Any = None, reduction: str = "mean", log_prob: bool = False
    ) -> Any:
        rows = nll_rows(probs, labels, ignore_index, log_prob, floor)
        return reduce_losses(rows, labels, ignore_index, reduction)

    def bound(
        probs: Array,
        labels: Array,
        u: Any,
        ignore_index: Any = None,
        reduction: str = "mean",
        log_prob: bool = False,
    ) -> Any:
        rows = np.abs(nll_rows(probs, labels, ignore_index, log_prob, floor))
        return (labels.size + 8) * u * (reduce_losses(rows, labels, ignore_index, reduction) + u)

    return oracle, bound


def nll_with_grad(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Oracle and bound of nll_loss_with_softmax_grad for a dtype."""
    loss, loss_bound = nll(name)

    def gradient(probs: Array, labels: Array, loss_grad: Array, ignore_index: Any, reduction: str) -> Array:
        count = rows_that_count(labels, ignore_index) if reduction == "mean" else 1
        hot = np.arange(probs.shape[-1]) == labels[..., None]
        scale = np.broadcast_to(np.reshape(loss_grad, (*np.shape(loss_grad), 1)), (*labels.shape, 1)) / count
        kept = np.where(labels == ignore_index, 0, 1)[..., None] if ignore_index is not None else 1
        return (probs - hot) * scale * kept

    def oracle(
        probs: Array, labels: Array, loss_grad: Any = 1, ignore_index: Any = None, reduction: str = "mean"
    ) -> tuple[Any, Array]:
        return (
            loss(probs, labels, ignore_index, reduction),
            gradient(probs, labels, np.asarray(loss_grad), ignore_index, reduction),
        )

    def bound(
        probs: Array, labels: Array, *rest: Any, u: Any, ignore_index: Any = None, reduction: str = "mean"
    ) -> tuple[Any, Array]:
        loss_grad = np.asarray(rest[0] if rest else 1)
        exact = gradient(probs, labels, loss_grad, ignore_index, reduction)
        return loss_bound(probs, labels, u, ignore_index, reduction), 4 * u * np.abs(exact)

    return oracle, bound


# Collectives: arrays have a row a replica

STEPS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "mean": np.add,
    "square_add": np.add,
    "mul": np.multiply,
    "max": maximum,
    "min": minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}


def fold(rows: Array, op: str) -> Array:
    """Ascending fold of the rows; sums of float32 end exact (to odd)."""
    if op == "mean" and rows.dtype.kind in "iu":
        return truncated_mean(rows, 0, False)
    with np.errstate(all="ignore"):
        terms = [row * row if op == "square_add" else row for row in rows]
        total = terms[0]
        for i, term in enumerate(terms[1:], 2):
            last_sum = op in ("add", "square_add") and i == len(terms)
            total = add(total, term) if last_sum else STEPS[op](total, term)
        if op == "mean":
            total = div(total, total.dtype.type(len(terms)))
        return np.asarray(total)


def all_reduce(t: Array, members: Members, op: str = "add") -> Array:
    """Every member of a group receives the fold."""
    results = [(r, fold(t[group], op)) for group in members for r in group]
    return np.stack([value for _, value in sorted(results, key=lambda pair: pair[0])])


def all_gather(t: Array, members: Members, axis: int = 0, output_shape: str = "auto") -> Array:
    """Members in ascending replica order."""
    rows = t[:, None] if t.ndim == 1 and output_shape != "new_axis" else t
    join = np.stack if output_shape == "new_axis" else np.concatenate
    results = [(r, join(list(rows[group]), axis=axis)) for group in members for r in group]
    return np.stack([value for _, value in sorted(results, key=lambda pair: pair[0])])


def reduce_scatter(t: Array, members: Members, op: str = "add", **_: Any) -> Array:
    """Member k gets chunk k of the flattened fold, zero padded."""
    size = len(members[0])
    chunk = -(-t[0].size // size)
    results = []
    for group in members:
        flat = fold(t[group], op).reshape(-1)
        padded = np.concatenate([flat, np.zeros(chunk * size - flat.size, flat.dtype)])
        results += [(r, padded[k * chunk : (k + 1) * chunk]) for k, r in enumerate(group)]
    return np.stack([value for _, value in sorted(results, key=lambda pair: pair[0])])
