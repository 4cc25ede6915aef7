"""Rows of the table of ai.graphcore: method, arrays, further arguments, and what NumPy computes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from popsr.compat import popart

__all__ = ["ROWS", "Row"]

Array = np.ndarray[Any, Any]
_rng = np.random.default_rng(1)


class Row(NamedTuple):
    """A call of a method; ``expected`` gives an array, or several, from the arrays."""

    method: str
    arrays: tuple[Array, ...]
    expected: Callable[..., Any]
    args: tuple[Any, ...] = ()
    named: Mapping[str, Any] = MappingProxyType({})
    tolerance: float = 1e-5


def _floats(*shape: int) -> Array:
    return _rng.normal(size=shape).astype(np.float32)


F, G = _floats(2, 3, 4), _floats(2, 3, 4)
INTS = np.array([[5, -7, 3], [12, 0, -1]], np.int32), np.array([[3, 3, -2], [7, 1, 6]], np.int32)
UNSIGNED = np.array([5, 7, 12], np.uint32), np.array([3, 2, 9], np.uint32)
ROWS4 = _floats(4, 3)


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


def _geluerf(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))))


def _elementwise() -> Iterator[Row]:
    yield Row("atan2", (F, G), np.arctan2)
    yield Row("expm1", (F,), np.expm1)
    yield Row("log1p", (abs(F),), np.log1p)
    yield Row("fmod", (F, G), np.fmod)
    yield Row("remainder", (F, G), np.mod, tolerance=1e-4)
    yield Row("remainder", INTS, np.mod)
    yield Row(
        "round", (np.array([0.5, 1.5, -2.5, 0.4], np.float32),), lambda x: np.array([1, 2, -3, 0], np.float32)
    )
    yield Row("nearbyint", (np.array([0.5, 1.5, -2.5, 0.4], np.float32),), np.rint)
    yield Row("swish", (F,), lambda x: x * _sigmoid(x))
    yield Row("gelu", (F,), _gelu, tolerance=1e-4)
    yield Row("geluerf", (F,), _geluerf)
    for name in ("nop", "detach", "tensorremap", "printtensor"):
        yield Row(name, (F[0, 0, :2],), lambda x: x)
    yield Row("scale", (F,), lambda x: x * np.float32(1.5), (1.5,))
    yield Row("scaledadd", (F, G), lambda a, b: a * np.float32(0.5) + b * 2, (0.5, 2.0))
    scalars = np.array([0.5], np.float32), np.array([2.0], np.float32)
    yield Row("scaledadd", (F, G, *scalars), lambda a, b, x, y: a * x + b * y)
    yield Row("incrementmod", (np.array([0, 2, 3], np.int32),), lambda x: (x + 2) % 4, (2, 4))
    yield Row("bitwiseand", UNSIGNED, np.bitwise_and)
    yield Row("bitwiseor", UNSIGNED, np.bitwise_or)
    yield Row("bitwisexor", UNSIGNED, np.bitwise_xor)
    yield Row("bitwisexnor", UNSIGNED, lambda a, b: ~(a ^ b))
    yield Row("bitwisenot", UNSIGNED[:1], np.invert)
    yield Row("copyvarupdate", (F, G), lambda a, b: b)
    yield Row(
        "normalize_image",
        (np.arange(12, dtype=np.float32).reshape(1, 2, 2, 3), _floats(3), _floats(3)),
        lambda x, o, s: np.pad((x * np.float32(0.5) - o) * s, ((0, 0),) * 3 + ((0, 1),)),
        (0.5,),
    )


def _shapes() -> Iterator[Row]:
    yield Row("reshape", (F,), lambda x: x.reshape(2, 12), ([0, -1],))
    yield Row("reverse", (F,), lambda x: x[::-1, :, ::-1], ([0, 2],))
    yield Row("slice", (F,), lambda x: x[0:2, 1:3], ([2, 3], [0, 1], [0, 1]))
    yield Row("subsample", (F,), lambda x: x[:, ::2, ::3], ([1, 2, 3],))
    yield Row(
        "depthtospace",
        (np.arange(8, dtype=np.float32).reshape(1, 4, 1, 2),),
        lambda x: np.array([[[[0, 2, 1, 3], [4, 6, 5, 7]]]], np.float32),
        (2, "CRD"),
    )
    yield Row(
        "init",
        (),
        lambda: np.zeros((2, 3), np.float32),
        ([2, 3], popart.DataType.FLOAT, popart.InitType.Zero, 1),
    )
    index = np.array([1], np.uint32)
    yield Row("dynamicslice", (ROWS4, index), lambda x, i: x[1:3], ([0], [2]))
    yield Row(
        "dynamicupdate",
        (ROWS4, index, _floats(2, 3)),
        lambda x, i, u: np.concatenate([x[:1], u, x[3:]]),
        ([0], [2]),
    )
    yield Row(
        "dynamicadd",
        (ROWS4, index, _floats(2, 3)),
        lambda x, i, u: np.concatenate([x[:1], x[1:3] + u, x[3:]]),
        ([0], [2]),
    )
    yield Row(
        "dynamiczero", (ROWS4, index), lambda x, i: np.concatenate([x[:1], 0 * x[1:3], x[3:]]), ([0], [2])
    )
    grouped = _floats(2, 4), np.array([[1, 1], [0, 3]], np.int32)
    yield Row("groupedgather", grouped, lambda x, i: np.take_along_axis(x, i, 1), (1, 2))
    to = np.array([0, 2, 0, 1], np.int32)
    yield Row("scatterreduce", (ROWS4, to), lambda x, i: np.stack([x[0] + x[2], x[3], x[1]]), (3, 0))
    yield Row(
        "scatterreduce",
        (ROWS4, to),
        lambda x, i: np.stack([np.maximum(x[0], x[2]), x[3], x[1]]),
        (3, 0),
        {"reduction": popart.ScatterReduction.Max},
    )
    yield Row(
        "groupedscatterreduce",
        (ROWS4.reshape(2, 2, 3), np.array([[0, 0], [1, 0]], np.int32)),
        lambda x, i: np.stack([[x[0].sum(0), 0 * x[0, 0]], [x[1, 1], x[1, 0]]]),
        (2, 1),
        {"group_size": 2},
    )
    entries = [np.array(each, np.uint32) for each in ([2, 1], [0, 3], [1, 0])]
    yield Row(
        "sequenceslice", (ROWS4, ROWS4 + 9, *entries), lambda s, t, *_: np.stack([s[3], s[0], s[1], t[3]])
    )
    yield Row(
        "sequenceslice",
        (ROWS4, ROWS4 + 9, *entries),
        lambda s, t, *_: np.stack([s[3], s[0], s[1], 0 * t[3]]),
        (1,),
    )
    bounds = np.array([0.0, 1.0], np.float32)
    yield Row(
        "bucketize", (np.array([-1, 0, 0.5, 1, 2], np.float32), bounds), lambda x, b: np.searchsorted(b, x)
    )
    yield Row(
        "bucketize",
        (np.array([-1, 0, 0.5, 1, 2], np.float32), bounds),
        lambda x, b: np.searchsorted(b, x, "right"),
        (1,),
    )
    yield Row("sort", (F,), lambda x: (np.sort(x, 1), np.argsort(x, 1, kind="stable")), (1,))
    yield Row("sort", (F,), lambda x: (-np.sort(-x, 2), np.argsort(-x, 2, kind="stable")), (-1, 1))
    yield Row("reducemedian", (_floats(2, 5),), lambda x: (np.median(x, 1), np.argsort(x, 1)[:, 2]), ([1], 0))


def _log_softmax(x: Array) -> Array:
    return np.asarray(x - np.log(np.exp(x).sum(-1, keepdims=True)))


def _ctc(logs: Array, targets: Array, lengths: Array, sizes: Array) -> Array:
    """The sum over all paths, one by one."""
    losses = []
    for n, (length, size) in enumerate(zip(lengths, sizes, strict=True)):
        total = 0.0
        for path in itertools.product(range(logs.shape[2]), repeat=int(length)):
            merged = [label for label, _ in itertools.groupby(path) if label]
            if merged == list(targets[n, :size]):
                total += math.exp(sum(logs[t, n, label] for t, label in enumerate(path)))
        losses.append(-math.log(total) if total else math.inf)
    return np.array(losses, np.float32)


CTC = (
    _log_softmax(_floats(4, 3, 3)),
    np.array([[1, 2], [1, 1], [2, 0]], np.uint32),
    np.array([4, 3, 2], np.uint32),
    np.array([2, 2, 1], np.uint32),
)
PROBS, LABELS = np.exp(_log_softmax(_floats(4, 3))), np.array([0, 2, 1, 2], np.int32)


def _nll(probs: Array, labels: Array) -> Array:
    return -np.log(probs[np.arange(len(labels)), labels])


def _losses() -> Iterator[Row]:
    reductions: dict[popart.ReductionType, Callable[[Array], Array]] = {
        popart.ReductionType.Mean: np.mean,
        popart.ReductionType.Sum: np.sum,
        popart.ReductionType.NoReduction: np.asarray,
    }
    for kind, reduce in reductions.items():
        named = {"reduction": kind}
        yield Row("l1loss", (F,), lambda x, f=reduce: f(abs(x) * np.float32(0.1)), (0.1,), named)
        yield Row("identityloss", (F,), lambda x, f=reduce: f(x), (), named)
        yield Row("nllloss", (PROBS, LABELS), lambda p, y, f=reduce: f(_nll(p, y)), (), named)
    yield Row(
        "nllloss", (PROBS, LABELS), lambda p, y: _nll(p, y)[[0, 2]].mean(), (popart.ReductionType.Mean, 2)
    )
    none, total = popart.ReductionType.NoReduction, popart.ReductionType.Sum
    yield Row("ctcloss", CTC, _ctc, (none,), tolerance=1e-4)
    yield Row("ctcloss", CTC, lambda *each: _ctc(*each).sum(), (total,), tolerance=1e-4)
    narrow = {"outDataType": "FLOAT16"}
    yield Row("ctcloss", CTC, lambda *each: _ctc(*each).sum().astype(np.float16), (total,), narrow, 1e-2)
    yield Row("ctcloss", CTC, lambda *each: (_ctc(*each) / each[3]).mean(), tolerance=1e-4)
    short = (*CTC[:2], np.array([1, 3, 2], np.uint32), CTC[3])
    yield Row(
        "ctcloss",
        short,
        lambda *each: np.where(np.isinf(_ctc(*each)), 0, _ctc(*each)),
        (none,),
        {"zeroInfinity": True},
        1e-4,
    )


def _norm(x: Array, axes: tuple[int, ...]) -> Array:
    return np.asarray((x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5))


def _batch_norm(x: Array, scale: Array, bias: Array, mean: Array, var: Array) -> tuple[Array, ...]:
    own_mean, own_var = x.mean((0, 2, 3)), x.var((0, 2, 3))
    y = _norm(x, (0, 2, 3)) * scale.reshape(1, -1, 1, 1) + bias.reshape(1, -1, 1, 1)
    return y, 0.9 * mean + 0.1 * own_mean, 0.9 * var + 0.1 * own_var, own_mean, own_var


def _group_norm(x: Array, scale: Array, bias: Array) -> tuple[Array, ...]:
    rows = x.reshape(x.shape[0] * 2, -1)
    y = _norm(rows, (1,)).reshape(x.shape) * scale.reshape(1, -1, 1, 1) + bias.reshape(1, -1, 1, 1)
    return y, rows.mean(1), 1 / np.sqrt(rows.var(1) + 1e-5)


def _lstm(x: Array, w: Array, b: Array, initial: Array) -> tuple[Array, ...]:
    out, cell = initial
    outs = []
    for step in x:
        forget, take, candidate, give = (np.concatenate([step, out], 1) @ w[i] + b[i] for i in range(4))
        cell = _sigmoid(forget) * cell + _sigmoid(take) * np.tanh(candidate)
        out = _sigmoid(give) * np.tanh(cell)
        outs.append(out)
    return np.stack(outs), cell


def _spline_basis(places: Array, sizes: Array, is_open: Array) -> tuple[Array, Array]:
    """Degree 1: linear interpolation between the corners of a cell."""
    basis, index = [], []
    for u in places:
        weights, corners = [], []
        for bits in itertools.product((0, 1), repeat=len(sizes)):
            weight, corner, offset = 1.0, 0, 1
            for d, bit in enumerate(reversed(bits)):
                v = u[d] * (sizes[d] - is_open[d])
                low = math.floor(v)
                weight *= v - low if bit else 1 - (v - low)
                corner += (low + bit) % int(sizes[d]) * offset
                offset *= int(sizes[d])
            weights.append(weight)
            corners.append(corner)
        basis.append(weights)
        index.append(corners)
    return np.array(basis, np.float32), np.array(index, np.int32)


def _neural() -> Iterator[Row]:
    image = _floats(2, 4, 3, 3)
    norm = image, _floats(4), _floats(4), _floats(4), abs(_floats(4)) + 1
    yield Row("batchnormalization", norm, _batch_norm, (5,))
    yield Row("groupnormalization", norm[:3], _group_norm, (2,))
    yield Row("shapeddropout", (F,), lambda x: x, ([2, 3, 1],))
    layers = _floats(3, 2, 4), _floats(4, 9, 5), _floats(4, 5), _floats(2, 2, 5)
    yield Row("lstm", layers, _lstm, tolerance=1e-4)
    yield Row("lstm", layers, lambda *each: (_lstm(*each)[0][-1], _lstm(*each)[1]), (0,), tolerance=1e-4)
    places = _rng.uniform(0, 1, (5, 2)).astype(np.float32)
    table = places, np.array([3, 4], np.int32), np.array([1, 0], np.uint8)
    yield Row("splinebasis", table, _spline_basis, (1,))
    basis, index = _spline_basis(*table)
    yield Row(
        "splineweighting",
        (_floats(5, 2), _floats(12, 2, 3), basis, index),
        lambda x, w, b, i: np.einsum("es,ei,esio->eo", b, x, w[i]),
        tolerance=1e-4,
    )


ROWS: list[Row] = [row for family in (_elementwise, _shapes, _losses, _neural) for row in family()]
