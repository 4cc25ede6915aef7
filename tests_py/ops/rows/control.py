"""Rows of the table of ops for the host's side, graphs that are run, and remote memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import popsr
from tests_py.ops.rows.inputs import Case, Draw, Facts, Row, integers_below, normal, small, special, together
from tests_py.support.helpers import ALL_DTYPES, FLOATS, INTS, Array, np_dtype
from tests_py.support.oracles import ops as oracles


def _row(*cases: Case, grad: Any, **options: Any) -> Row:
    return Row(cases, grad, **options)


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


def _while_loop(fn: Callable[..., Any], x: popsr.Tensor, y: popsr.Tensor) -> Any:
    def cond(a: popsr.Tensor) -> popsr.Tensor:
        return popsr.ops.less(popsr.ops.max(a), popsr.constant(9, a.dtype))

    def body(a: popsr.Tensor, b: popsr.Tensor) -> popsr.Tensor:
        return popsr.ops.add(popsr.ops.add(a, b), popsr.constant(1, a.dtype))

    ir = popsr.gir()
    return fn(ir.create_graph(cond, x), ir.create_graph(body, x, y), x, y)


def _counted(a: Array, b: Array) -> Array:
    while a.max() < 9:
        a = a + b + 1
    return a


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
    undefined = Case(lambda *_: [], _same, {"shape": (2, 3), "dtype": "int8", "init_type": "undef"})
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
        "init": _row(
            *zeros,
            grad="nothing",
            python_only=("name",),
            replicas=(Facts((), "0123", case=undefined, label="undefined-memory"),),
        ),
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
        "while_loop": _row(
            Case(small((3,), (3,)), _counted, dtypes=(*FLOATS, *INTS), call=_while_loop),
            grad="throws",
            python_only=("cond", "inputs_dict"),
            renamed={"graph": "body"},
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
        # The dtypes of a row are the first input's, here the offset's.
        "remote_load": _row(
            Case(together(normal((2, 3)), at), first, dtypes=INTS, call=load),
            Case(normal((4,)), first, {}, "known", ("int32",), call=load),
            grad="nothing",
            python_only=("name",),
            required=("offset",),
        ),
        "remote_load_": row(
            second,
            load_into,
            2,
            ALL_DTYPES,
            grad="modifies",
            parameters=("remote_buffer", "offset", "t"),
            replicas=(
                Facts(("0011", "0000"), "0000"),
                Facts(("0000", "0011"), "0011"),
                Facts(("0000", "0000", "0101"), "0101"),
            ),
        ),
        "remote_store": row(
            first, store, 1, ALL_DTYPES, grad="nothing", parameters=("remote_buffer", "offset", "t")
        ),
    }


def control_rows() -> dict[str, Row]:
    """Streams, prints, new tensors; call, repeat, conditional; remote memory."""
    return {**_others(), **_remote()}
