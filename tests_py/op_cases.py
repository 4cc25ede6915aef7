"""The table of ops: one row per public op, with oracles, example inputs, tolerances and what its gradient is.

A row is looked up by the tests that enumerate the registry; an op without one fails them. Adding an op = one row here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import oracles
from collective_cases import collective_rows, groups
from conv_cases import conv_rows
from elementwise_cases import elementwise_rows
from fp8_cases import fp8_rows
from helpers import ALL_DTYPES, FLOATS, INTS, NUMBERS, NUMBERS_AND_BOOL, Array, np_dtype
from indexing_cases import indexing_rows
from norm_cases import norm_rows
from op_inputs import (
    Case,
    Draw,
    Row,
    integers_below,
    losses,
    normal,
    positive,
    small,
    special,
    together,
    with_labels,
)
from place_cases import place_rows
from pool_cases import pool_rows
from random_cases import random_rows
from reduction_cases import reduction_rows
from update_cases import update_rows
from view_cases import view_rows

import popsr


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
    Case(special(2), oracles.scaled_add, {"a": -1.0}, "special"),
    grad="stops",
)


def _mul_by_single(a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        return a * b.astype(np.float32)


def _elementwise() -> dict[str, Row]:
    loss_scale = Case(
        together(normal((3, 4)), (positive((1,)), "float32")), _mul_by_single, {}, "loss-scale", ("float16",)
    )
    many = Case(normal(*[(4, 5)] * 4), oracles.maximum, label="four", dtypes=NUMBERS, smooth=True)
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
        "maximum": _row(
            Case(normal((3, 4), (3, 4)), oracles.maximum, dtypes=NUMBERS, smooth=True),
            many,
            Case(normal((3,)), oracles.maximum, label="one", dtypes=NUMBERS),
            Case(special(2), oracles.maximum, label="special", dtypes=NUMBERS),
            grad="finite",
        ),
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


# --- shapes and casts -----------------------------------------------------------------------------------------------


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
            grad="finite",
        ),
        "cast": _row(*(case for target in NUMBERS_AND_BOOL for case in _casts(target)), grad="finite"),
    }


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


# --- reductions, products, losses -----------------------------------------------------------------------------------


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
    return {
        "nll_loss": _row(*plain, grad="finite"),
        "nll_loss_with_softmax_grad": _row(*joint, grad="stops", defaults={"loss_grad": 1}),
    }


# --- host, control, collectives, variables --------------------------------------------------------------------------


def _same(t: Array, **_: Any) -> Array:
    return t


def _call(fn: Callable[..., Any], x: popsr.Tensor, y: popsr.Tensor) -> Any:
    def body(a: popsr.Tensor, b: popsr.Tensor) -> popsr.Tensor:
        return popsr.ops.sub(b, a)

    return fn(popsr.gir().create_graph(body, x, y), x, y)


def _repeat(fn: Callable[..., Any], x: popsr.Tensor, y: popsr.Tensor) -> Any:
    def body(a: popsr.Tensor, b: popsr.Tensor) -> popsr.Tensor:
        return popsr.ops.sub(b, a)

    return fn(popsr.gir().create_graph(body, x, y), 3, x, y)


def _conditional(fn: Callable[..., Any], x: popsr.Tensor, y: popsr.Tensor, condition: popsr.Tensor) -> Any:
    def then_branch(a: popsr.Tensor, b: popsr.Tensor) -> popsr.Tensor:
        return popsr.ops.sub(b, a)

    def else_branch(a: popsr.Tensor) -> popsr.Tensor:
        return popsr.ops.negate(a)

    ir = popsr.gir()
    graphs = (ir.create_graph(then_branch, x, y), ir.create_graph(else_branch, y))
    return fn(condition, *graphs, [x, y], [y])


def _choose(a: Array, b: Array, condition: Array) -> Array:
    return b - a if condition else -b


def _condition(value: Any) -> Draw:
    return lambda rng, name: [np.array(value)]


def _others() -> dict[str, Row]:
    zeros = [
        Case(
            lambda *_: [],
            lambda shape, dtype: np.zeros(shape, np_dtype(dtype)),
            {"shape": (2, 3), "dtype": name},
            dtypes=(name,),
        )
        for name in ALL_DTYPES
    ]
    return {
        # Tests feed and fetch tensors through these two.
        "host_load": _row(
            Case(normal((2, 3)), _same, dtypes=ALL_DTYPES, call=lambda fn, t: t),
            grad="nothing",
            python_only=("name",),
        ),
        "host_store": _row(
            Case(normal((2, 3)), _same, dtypes=ALL_DTYPES, call=lambda fn, t: t), grad="nothing"
        ),
        "print_tensor": _row(
            Case(normal((2, 3)), _same, dtypes=ALL_DTYPES, smooth=True),
            Case(normal((2, 3)), _same, {"title": "x", "print_self": False}, "silent", smooth=True),
            grad="finite",
        ),
        "init": _row(*zeros, grad="nothing", python_only=("name",)),
        "call": _row(
            Case(normal((3,), (3,)), lambda a, b: oracles.sub(b, a), call=_call, smooth=True),
            grad="finite",
            python_only=("inputs_dict",),
        ),
        "repeat": _row(
            Case(small((3,), (3,)), lambda a, b: b - a, dtypes=(*FLOATS, *INTS), call=_repeat),
            grad="stops",
            python_only=("inputs_dict",),
            renamed={"count": "repeat_count"},
        ),
        "conditional": _row(
            *(
                Case(
                    together(small((3,), (3,)), _condition(value)),
                    _choose,
                    {},
                    label,
                    numbers,
                    call=_conditional,
                    smooth=True,
                )
                for label, value in (("", True), ("else", False), ("one-element", [True]))
                for numbers in [(*FLOATS, *INTS)]
            ),
            grad="finite",
            parameters=("cond", "then_branch", "else_branch", "then_inputs"),
            python_only=("else_inputs", "then_inputs_dict", "else_inputs_dict"),
            renamed={"inputs": "then_inputs"},
            listed=True,
            defaults={"then_inputs": None},
        ),
    }


def _remote() -> dict[str, Row]:
    at = integers_below(3)

    def load(fn: Any, value: Any, offset: Any = 1) -> Any:
        buffer = popsr.remote_buffer(value.shape, value.dtype, 3)
        popsr.ops.remote_store(buffer, offset, value)
        return fn(buffer, offset)

    def load_into(fn: Any, t: Any, value: Any, offset: Any = 2) -> Any:
        buffer = popsr.remote_buffer(value.shape, value.dtype, 3)
        popsr.ops.remote_store(buffer, offset, value)
        return fn(buffer, offset, t)

    def store(fn: Any, value: Any, offset: Any = 0) -> Any:
        buffer = popsr.remote_buffer(value.shape, value.dtype, 3)
        fn(buffer, offset, value)
        return popsr.ops.remote_load(buffer, offset)

    def first(value: Array, offset: Any = None) -> Array:
        return value

    def second(t: Array, value: Array, offset: Any = None) -> Array:
        return value

    def row(oracle: Any, call: Any, arrays: int, dtypes: Any, **options: Any) -> Row:
        values = [normal((2, 3))] * arrays
        return _row(
            Case(together(*values), oracle, dtypes=dtypes, call=call),
            *(Case(together(*values, (at, i)), oracle, {}, f"at-{i}", ("float32",), call=call) for i in INTS),
            Case(together(*[normal((0, 3))] * arrays), oracle, {}, "empty", ("float32",), call=call),
            Case(together(*[special(1)] * arrays), oracle, {}, "special", ("float16",), call=call),
            required=("offset",),
            **options,
        )

    return {
        # The dtypes of a row are those of the first input, here of the offset.
        "remote_load": _row(
            Case(together(normal((2, 3)), at), first, dtypes=INTS, call=load),
            Case(normal((4,)), first, {}, "known", ("int32",), call=load),
            grad="nothing",
            python_only=("name",),
            required=("offset",),
        ),
        "remote_load_": row(
            second, load_into, 2, ALL_DTYPES, grad="modifies", parameters=("remote_buffer", "offset", "t")
        ),
        "remote_store": row(
            first, store, 1, ALL_DTYPES, grad="nothing", parameters=("remote_buffer", "offset", "t")
        ),
    }


def _collectives() -> dict[str, Row]:
    reduced = [
        case
        for op in oracles.STEPS
        for case in groups(
            oracles.all_reduce, (300,), {"op": op}, op, (*INTS, "bool") if op in ("and", "or") else NUMBERS
        )
    ]
    gathered = [
        *groups(oracles.all_gather, (2, 3), {}, "", ALL_DTYPES),
        *groups(oracles.all_gather, (), {}, "scalar", ALL_DTYPES),
        *groups(oracles.all_gather, (2, 3), {"axis": -1}, "last", ALL_DTYPES),
        *groups(oracles.all_gather, (2, 3), {"axis": 1, "output_shape": "new_axis"}, "new", ALL_DTYPES),
    ]
    scattered = [
        *groups(oracles.reduce_scatter, (5,), {"op": "or"}, "or", (*INTS, "bool")),
        *groups(oracles.reduce_scatter, (7,), {}, "", NUMBERS),
        *groups(oracles.reduce_scatter, (2, 4), {"op": "max"}, "max", NUMBERS),
        *groups(oracles.reduce_scatter, (1,), {"op": "mean"}, "mean", NUMBERS),
    ]
    return {
        "replicated_all_reduce": _row(*reduced, grad="stops"),
        "replicated_all_reduce_": _row(*reduced, grad="modifies", inplace_of="replicated_all_reduce"),
        "replicated_all_gather": _row(*gathered, grad="own part"),
        "replicated_reduce_scatter": _row(*scattered, grad="throws"),
    }


def _mean_update(t: Array, x: Array, step: Any) -> Array:
    wide = t.dtype.type
    b = wide(1) / (wide(step) + wide(1))
    return oracles.scaled_add(t, x, wide(1) - b, b)


def _accumulate(t: Array, x: Array, f: Any = 1.0) -> Array:
    return oracles.scaled_add(t, x.astype(t.dtype), 1.0, f)


def _var_updates() -> dict[str, Row]:
    pair = normal((3, 5), (3, 5))
    mixed = together(normal((300,)), (normal((300,)), "float32"))
    factor = together(normal((9,), (9,)), (positive(()), "float32"))

    def row(*cases: Case, required: tuple[str, ...] = ()) -> Row:
        return _row(*cases, grad="modifies", required=required)

    def scaled(t: Array, f: Any) -> Array:
        with np.errstate(all="ignore"):
            return t * t.dtype.type(f)

    return {
        "accumulate_": row(
            Case(pair, _accumulate, dtypes=NUMBERS),
            Case(pair, _accumulate, {"f": 3.0}, "factor", NUMBERS),
            Case(pair, _accumulate, {"f": 0.3}, "fraction"),
            Case(mixed, _accumulate, {"f": 1e-3}, "mixed"),
            Case(factor, _accumulate, {}, "tensor"),
            Case(special(2), lambda t, x, f: t, {"f": 0.0}, "nothing", NUMBERS),
        ),
        "accumulate_mean_": row(
            Case(pair, _mean_update, {"step": 0.0}),
            Case(pair, _mean_update, {"step": 6.0}, "later"),
            Case(factor, _mean_update, {}, "tensor"),
            required=("step",),
        ),
        "accumulator_scale_": row(
            Case(normal((3, 5)), scaled, {"f": 3.0}, "", NUMBERS),
            Case(normal((3, 5)), scaled, {"f": 0.3}, "fraction"),
            Case(together(normal((9,)), (positive(()), "float32")), scaled, {}, "tensor"),
            Case(special(1), lambda t, f: np.zeros_like(t), {"f": 0.0}, "clear", NUMBERS),
            required=("f",),
        ),
        "accumulator_zero_": row(Case(special(1), np.zeros_like, dtypes=ALL_DTYPES)),
        "copy_var_update_": row(
            Case(pair, lambda t, x: x, dtypes=ALL_DTYPES),
            Case(mixed, lambda t, x: x, {}, "mixed", ("float16", "bfloat16", "float32")),
        ),
    }


OPS: dict[str, Row] = {
    **_elementwise(),
    **elementwise_rows(),
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
    **_others(),
    **_collectives(),
    **collective_rows(),
    **place_rows(),
    **_remote(),
    **_var_updates(),
    **update_rows(),
}
