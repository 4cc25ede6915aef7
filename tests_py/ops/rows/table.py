"""The table of ops: one row per public op, with oracles, example inputs, tolerances and what its gradient is.

A row is looked up by the tests that enumerate the registry; an op without one fails them. Adding an op = one row here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tests_py.ops.rows.arrangements import arrangement_rows
from tests_py.ops.rows.attention import attention_rows
from tests_py.ops.rows.collectives import collective_rows
from tests_py.ops.rows.control import control_rows
from tests_py.ops.rows.conv import conv_rows
from tests_py.ops.rows.elements import element_rows
from tests_py.ops.rows.elementwise import elementwise_rows
from tests_py.ops.rows.float8 import fp8_rows
from tests_py.ops.rows.functions import function_rows
from tests_py.ops.rows.indexing import indexing_rows
from tests_py.ops.rows.inputs import (
    Case,
    Draw,
    Facts,
    Row,
    losses,
    normal,
    positive,
    small,
    special,
    together,
    with_labels,
)
from tests_py.ops.rows.norms import norm_rows
from tests_py.ops.rows.places import place_rows
from tests_py.ops.rows.pool import pool_rows
from tests_py.ops.rows.random import random_rows
from tests_py.ops.rows.reductions import reduction_rows
from tests_py.ops.rows.refusals.table import refusals_by_op
from tests_py.ops.rows.resampling import resampling_rows
from tests_py.ops.rows.updates import update_rows
from tests_py.ops.rows.views import view_rows
from tests_py.support.helpers import (
    ALL_DTYPES,
    CARRIERS,
    FLOATS,
    INTS,
    NUMBERS,
    NUMBERS_AND_BOOL,
    Array,
    np_dtype,
)
from tests_py.support.oracles import ops as oracles


def _row(*cases: Case, grad: Any, **options: Any) -> Row:
    return Row(cases, grad, **options)


def _binary(oracle: Callable[..., Any], smooth: Callable[..., Draw] = normal) -> list[Case]:
    def case(draw: Draw, label: str = "") -> Case:
        return Case(draw, oracle, {}, label, NUMBERS)

    differentiated = [
        Case(smooth((3, 4), (3, 4)), oracle, {}, "smooth", smooth=True),
        Case(smooth((2, 3, 4), (3, 1)), oracle, {}, "smooth-broadcast", smooth=True),
        Case(smooth((4, 1), (1, 5)), oracle, {}, "smooth-both-broadcast", smooth=True),
    ]
    return [
        case(normal((3, 4), (3, 4))),
        case(normal((2, 3, 4), (3, 1)), "broadcast"),
        case(normal((7, 1), (1, 300)), "both-broadcast"),
        case(normal((), (5,)), "scalar"),
        case(normal((0, 3), (3,)), "empty"),
        case(special(2), "special"),
        *differentiated,
    ]


def _unary(
    oracle: Callable[..., Any], numbers: Draw, dtypes: tuple[str, ...] = FLOATS, **options: Any
) -> list[Case]:
    return [
        Case(numbers, oracle, dtypes=dtypes, smooth=True, **options),
        Case(special(1), oracle, label="special", dtypes=dtypes, **options),
        Case(normal((2, 0)), oracle, label="empty", dtypes=dtypes, **options),
        Case(normal(()), oracle, label="scalar", dtypes=dtypes, **options),
    ]


def _ulps(single: float, double: float) -> dict[str, float]:
    return {"float32": single, "float64": double}


def _inplace(row: Row, name: str) -> Row:
    fits = tuple(case for case in row.cases if not case.label.endswith(("both-broadcast", "scalar")))
    return Row(fits, "modifies", inplace_of=name)


_ADD = _row(*_binary(oracles.add), grad="finite")
_EXP = _row(*_unary(np.exp, normal((5, 7), scale=3.0), ulps=_ulps(2, 2)), grad="finite")
_RELU = _row(*_unary(oracles.relu, normal((5, 7)), NUMBERS), grad="finite")
_GELU = _row(*_unary(oracles.gelu, normal((5, 7), scale=3.0), ulps=_ulps(2, 4)), grad="finite")

_SCALED_ADD = _row(
    Case(normal((3, 5), (3, 5)), oracles.scaled_add),
    Case(normal((3, 5), (3, 5)), oracles.scaled_add, {"a": 0.3, "b": -1.7}, "factors"),
    Case(together(normal((300,)), (normal((300,)), "float32")), oracles.scaled_add, {"b": 1e-3}, "mixed"),
    Case(together(normal((9,), (9,)), (positive((), (1,)), "float32")), oracles.scaled_add, {}, "tensors"),
    Case(
        together(normal((300,)), (normal((300,)), "int16"), (positive((), (1,)), "int32")),
        oracles.scaled_add,
        {},
        "integers",
    ),
    Case(special(2), oracles.scaled_add, {"a": -1.0}, "special"),
    grad="stops",
)


def _mul_by_single(a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        return a * b.astype(np.float32)


def _extreme(oracle: Callable[..., Any]) -> Row:
    return _row(
        Case(normal((3, 4), (3, 4)), oracle, dtypes=NUMBERS, smooth=True),
        Case(normal(*[(4, 5)] * 4), oracle, label="four", dtypes=NUMBERS, smooth=True),
        Case(normal((3,)), oracle, label="one", dtypes=NUMBERS),
        Case(normal((4, 1), (5,), (2, 1, 1)), oracle, {}, "broadcast", NUMBERS, smooth=True),
        Case(special(2), oracle, label="special", dtypes=NUMBERS),
        grad="finite",
    )


def _elementwise() -> dict[str, Row]:
    loss_scale = Case(
        together(normal((3, 4)), (positive((1,)), "float32")), _mul_by_single, {}, "loss-scale", ("float16",)
    )
    return {
        "add": _ADD,
        "add_": _inplace(_ADD, "add"),
        "sub": _row(*_binary(oracles.sub), grad="finite"),
        "mul": _row(*_binary(_quietly(np.multiply)), loss_scale, grad="finite"),
        "div": _row(*_binary(oracles.div, positive), grad="finite"),
        "pow": _row(
            Case(positive((3, 4), (3, 4)), np.power, ulps=_ulps(1, 2), smooth=True),
            Case(positive((3, 4), (4,)), np.power, {}, "broadcast", ulps=_ulps(1, 2), smooth=True),
            Case(special(2), np.power, {}, "special", ulps=_ulps(1, 2)),
            grad="finite",
        ),
        "maximum": _extreme(oracles.maximum),
        "minimum": _extreme(oracles.minimum),
        "negate": _row(*_unary(oracles.negate, normal((5, 7)), NUMBERS), grad="finite"),
        "abs": _row(*_unary(oracles.absolute, normal((5, 7)), NUMBERS), grad="finite"),
        "exp": _EXP,
        "exp_": _inplace(_EXP, "exp"),
        "log": _row(*_unary(np.log, positive((5, 7)), ulps=_ulps(2, 2)), grad="finite"),
        "sqrt": _row(*_unary(_quietly(np.sqrt), positive((5, 7))), grad="finite"),
        "tanh": _row(*_unary(np.tanh, normal((5, 7), scale=2.0), ulps=_ulps(2, 2)), grad="finite"),
        "relu": _RELU,
        "relu_": _inplace(_RELU, "relu"),
        "gelu": _GELU,
        "gelu_": _inplace(_GELU, "gelu"),
        "scaled_add": _SCALED_ADD,
        "scaled_add_": _inplace(_SCALED_ADD, "scaled_add"),
    }


def _quietly(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arrays: Array) -> Any:
        with np.errstate(all="ignore"):
            return function(*arrays)

    return call


# Shapes and casts


def _move(source: tuple[int, ...], oracle: Callable[..., Any], label: str = "", /, **attrs: Any) -> Case:
    empty = 0 in source or label == "nothing"
    return Case(normal(source), oracle, attrs, label, ALL_DTYPES, smooth=not empty)


def _sliced(*key: slice) -> Callable[..., Array]:
    return lambda t, **_: t[key]


def _shapes() -> dict[str, Row]:
    def reshaped(t: Array, shape: tuple[int, ...]) -> Array:
        return t.reshape(shape)

    return {
        "reshape": _row(
            _move((3, 4), reshaped, shape=(2, 6)),
            _move((3, 4), reshaped, "inferred", shape=(2, -1, 3)),
            _move((1,), reshaped, "to-scalar", shape=()),
            _move((0, 4), reshaped, "empty", shape=(2, 0)),
            grad="finite",
        ),
        "expand": _row(
            _move((3, 1), np.broadcast_to, shape=(3, 4)),
            _move((4,), np.broadcast_to, "new-axes", shape=(2, 3, 4)),
            _move((2, 1, 3, 1), np.broadcast_to, "inner", shape=(5, 2, 4, 3, 300)),
            _move((), np.broadcast_to, "scalar", shape=(7,)),
            _move((3, 4), np.broadcast_to, "same", shape=(3, 4)),
            _move((1, 2), np.broadcast_to, "nothing", shape=(0, 2)),
            grad="finite",
        ),
        "flatten": _row(_move((3, 4), np.ravel), _move((), np.ravel, "scalar"), grad="finite"),
        "squeeze": _row(
            _move((1, 3, 1), np.squeeze),
            _move((1, 3, 1), lambda t, axes: t.squeeze(tuple(axes)), "axes", axes=[0]),
            _move((1, 3, 1), lambda t, axes: t.squeeze(tuple(axes)), "negative", axes=[-1]),
            grad="finite",
        ),
        "transpose": _row(
            _move((3, 40), np.transpose),
            _move((2, 3, 4), np.transpose, "reversed"),
            _move(
                (2, 3, 4, 5),
                lambda t, permutation: t.transpose(permutation),
                "order",
                permutation=(2, 0, 3, 1),
            ),
            _move(
                (2, 3, 4), lambda t, permutation: t.transpose(permutation), "negative", permutation=(-1, 0, 1)
            ),
            _move((2, 0, 4), np.transpose, "empty"),
            grad="finite",
        ),
        "slice": _row(
            _move((5, 6), _sliced(slice(1, 4), slice(2, 5)), start=[1, 2], stop=[4, 5]),
            _move((5, 6), _sliced(slice(1, 3)), "int", start=1, stop=3),
            _move((5, 6), _sliced(slice(None), slice(2, None)), "axis", start=2, stop=None, axis=1),
            _move((5, 6), _sliced(slice(None), slice(-3, -1)), "negative", start=[-3], stop=[-1], axis=[-1]),
            _move((5, 6), _sliced(slice(None, None, -1)), "reverse", start=None, stop=None, step=-1, axis=0),
            _move((5,), _sliced(slice(3, 0, -1)), "backwards", start=3, stop=0, step=-1),
            _move((5,), _sliced(slice(1, 99)), "clamped", start=1, stop=99),
            _move((5,), _sliced(slice(2, 2)), "nothing", start=2, stop=2),
            _move(
                (7, 6),
                _sliced(slice(1, None, 3), slice(None, None, -2)),
                "steps",
                start=[1, None],
                stop=[None, None],
                step=[3, -2],
            ),
            _move((5,), _sliced(slice(1, 3, 99)), "one-step", start=1, stop=3, step=99),
            _move(
                (5,), _sliced(slice(3, None, -(2**63))), "one-step-down", start=3, stop=None, step=-(2**63)
            ),
            grad="finite",
        ),
        "cast": _row(
            *(case for target in NUMBERS_AND_BOOL for case in _casts(target)),
            *(
                Case(draw, _by_ml_dtypes, {"data_type": to}, f"{label}-to-{to}", ("float32",))
                for to in CARRIERS
                for label, draw in {"special": special(1), "normal": normal((3, 40))}.items()
            ),
            Case(special(1), _by_ml_dtypes, {"data_type": "float32"}, "of-carriers", CARRIERS),
            grad="finite",
        ),
    }


def _by_ml_dtypes(t: Array, data_type: str) -> Array:
    with np.errstate(all="ignore"):
        return t.astype(np_dtype(data_type))


def _casts(target: str) -> list[Case]:
    attrs = {"data_type": target}
    return [
        Case(
            normal((3, 7), scale=50.0),
            oracles.cast,
            attrs,
            f"to-{target}",
            NUMBERS_AND_BOOL,
            smooth=target == "float64",
        ),
        Case(special(1), oracles.cast, attrs, f"special-to-{target}", NUMBERS_AND_BOOL),
    ]


# Reductions, products, losses


def _sum_bound(t: Array, u: Any, axis: Any = None, keepdims: bool = False) -> Array:
    return t.size * u * np.abs(t).sum(axis=_axis(axis), keepdims=keepdims)


def _mean_bound(t: Array, u: Any, axis: Any = None, keepdims: bool = False) -> Array:
    return (t.size + 2) * u * np.abs(t).mean(axis=_axis(axis), keepdims=keepdims)


def _axis(axis: Any) -> Any:
    return tuple(axis) if isinstance(axis, list) else axis


def _reduction(function: Callable[..., Array], bound: Callable[..., Array] | None) -> list[Case]:
    def oracle(t: Array, axis: Any = None, keepdims: bool = False) -> Array:
        return np.asarray(function(t, axis=_axis(axis), keepdims=keepdims))

    attrs: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
        ("", (4, 33), {}),
        ("last", (4, 33), {"axis": -1}),
        ("first", (40, 3), {"axis": 0}),
        ("both", (3, 4, 5), {"axis": [0, 2], "keepdims": True}),
        ("none", (3, 4), {"axis": []}),
        ("one", (3, 1), {"axis": 1}),
        ("long", (2, 1000), {"axis": [1]}),
    ]
    floats = [
        Case(normal(shape), oracle, a, label, FLOATS, bound=bound, smooth=True) for label, shape, a in attrs
    ]
    return [*floats, *(Case(normal(shape), oracle, a, f"int-{label}", INTS) for label, shape, a in attrs)]


def _reductions() -> dict[str, Row]:
    empty = Case(normal((0, 3)), _wrapping_sum, {"axis": 0}, "empty", NUMBERS)
    return {
        "sum": _row(*_reduction(_wrapping_sum, _sum_bound), empty, grad="finite"),
        "mean": _row(*_reduction(_mean, _mean_bound), grad="finite"),
        "max": _row(
            *_reduction(np.max, None),
            Case(special(1), lambda t: np.asarray(np.max(t)), {}, "special"),
            grad="finite",
        ),
        "softmax": _row(
            Case(normal((4, 9), scale=3.0), oracles.softmax, {"axis": -1}, bound=_softmax_bound, smooth=True),
            Case(
                normal((4, 9, 3)), oracles.softmax, {"axis": 1}, "middle", bound=_softmax_bound, smooth=True
            ),
            Case(normal((2, 700)), oracles.softmax, {"axis": 1}, "long", bound=_softmax_bound),
            Case(normal((4, 1)), oracles.softmax, {"axis": 1}, "one", bound=_softmax_bound),
            grad="finite",
        ),
        "matmul": _row(
            Case(normal((3, 4), (4, 5)), np.matmul, bound=_product_bound, smooth=True),
            Case(normal((2, 3, 4), (4, 5)), np.matmul, {}, "batch", bound=_product_bound, smooth=True),
            Case(normal((2, 3, 4), (2, 4, 5)), np.matmul, {}, "batches", bound=_product_bound, smooth=True),
            Case(
                normal((2, 1, 3, 4), (5, 4, 2)), np.matmul, {}, "broadcast", bound=_product_bound, smooth=True
            ),
            Case(normal((4,), (4, 5)), np.matmul, {}, "vector-matrix", bound=_product_bound, smooth=True),
            Case(normal((3, 4), (4,)), np.matmul, {}, "matrix-vector", bound=_product_bound, smooth=True),
            Case(normal((4,), (4,)), np.matmul, {}, "vectors", bound=_product_bound, smooth=True),
            Case(normal((37, 130), (130, 61)), np.matmul, {}, "tiles", bound=_product_bound),
            Case(small((9, 40), (40, 17)), np.matmul, {}, "exact"),
            Case(normal((3, 0), (0, 2)), np.matmul, {}, "empty"),
            grad="finite",
        ),
    }


def _wrapping_sum(t: Array, axis: Any, keepdims: bool = False) -> Array:
    return np.sum(t, axis=axis, keepdims=keepdims, dtype=t.dtype)


def _mean(t: Array, axis: Any, keepdims: bool) -> Array:
    mean = np.mean if t.dtype.kind == "f" else oracles.truncated_mean
    return np.asarray(mean(t, axis=axis, keepdims=keepdims))


def _softmax_bound(t: Array, u: Any, axis: int) -> Array:
    spread = np.max(np.abs(t - t.max(axis=axis, keepdims=True)))
    return oracles.softmax(t, axis) * u * (2 * (4 + spread) + t.shape[axis] / 16 + 8)


def _product_bound(a: Array, b: Array, u: Any) -> Array:
    return a.shape[-1] * u * np.matmul(np.abs(a), np.abs(b))


def _losses() -> dict[str, Row]:
    plain, joint = [], []
    for name in FLOATS:
        oracle, bound = oracles.nll(name)
        for label, rows, attrs in (
            ("", (6,), {}),
            ("sum", (4, 3), {"reduction": "sum"}),
            ("none", (4, 3), {"reduction": "none"}),
            ("ignored", (40,), {"ignore_index": 2}),
            ("log", (6,), {"log_prob": True}),
        ):
            plain.append(Case(losses(*rows), oracle, attrs, label, (name,), bound=bound, smooth=True))
        plain.append(Case(with_labels(losses(1), [9]), oracle, {}, "outside", (name,), bound=bound))
        plain.append(
            Case(with_labels(losses(3), [1, 1, 1]), oracle, {"ignore_index": 1}, "all", (name,), bound=bound)
        )
        oracle, bound = oracles.nll_with_grad(name)
        for label, rows, third, attrs in (
            ("", (6,), None, {}),
            ("tensor", (6,), (), {"reduction": "sum"}),
            ("per-row", (3, 4), (3, 4), {"reduction": "none"}),
            ("ignored", (40,), (), {"ignore_index": 2}),
        ):
            case = Case(losses(*rows, third=third), oracle, attrs, label, (name,), bound=bound)
            joint.append(case)
        integer = together(losses(6), (positive(()), "int32"))
        joint.append(Case(integer, oracle, {"reduction": "sum"}, "integer", (name,), bound=bound))
    return {
        "nll_loss": _row(*plain, grad="finite"),
        "nll_loss_with_softmax_grad": _row(
            *joint,
            grad="stops",
            defaults={"loss_grad": 1},
            replicas=(
                Facts(("0011", "0000", "0101"), ("0011", "0123"), case=joint[1], label="loss-grad-differs"),
            ),
        ),
    }


_ROWS: dict[str, Row] = {
    **_elementwise(),
    **elementwise_rows(),
    **function_rows(),
    **arrangement_rows(),
    **attention_rows(),
    **element_rows(),
    **resampling_rows(),
    **fp8_rows(),
    **_shapes(),
    **view_rows(_shapes()),
    **conv_rows(),
    **indexing_rows(),
    **_reductions(),
    **norm_rows(),
    **random_rows(),
    **reduction_rows(),
    **pool_rows(),
    **_losses(),
    **control_rows(),
    **collective_rows(),
    **place_rows(),
    **update_rows(),
}
_REFUSALS = refusals_by_op()
OPS: dict[str, Row] = {op: replace(row, errors=_REFUSALS.get(op, ())) for op, row in _ROWS.items()}
