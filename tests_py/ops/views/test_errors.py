"""What views refuse: bad operands, memory that cannot be written, orders that are not fixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import TensorByRef, errors, ops
from tests_py.support.helpers import make_variable

F32 = popsr.float32
X = np.arange(24, dtype=np.float32).reshape(4, 6) - 11


def _graph_input(shape: tuple[int, ...], dtype: Any = F32) -> popsr.Tensor:
    return popsr.graph_input(shape, dtype)


BAD: list[tuple[str, Callable[[popsr.Tensor], Any], type[Exception], str]] = [
    (
        "constant",
        lambda x: ops.relu_(popsr.constant(X).T_),
        errors.GraphError,
        r"^relu_: input t is modified but c",
    ),
    (
        "constant-beside",
        lambda x: ops.add_(ops.concat_([x, popsr.constant(X)]), x),
        errors.GraphError,
        r"^add_: input lhs is modified but constant, got '.*concat__out'",
    ),
    (
        "twice",
        lambda x: ops.relu_(ops.concat_([x, x])),
        errors.GraphError,
        r"^relu_: input t is modified but it, or what it is a part of, holds an element twice, got",
    ),
    (
        "no-operand",
        lambda x: ops.concat([]),
        errors.GraphError,
        r"^concat: no operands, expected at least one",
    ),
    (
        "no-view",
        lambda x: ops.concat_([]),
        errors.GraphError,
        r"^concat_: no operands, expected at least one",
    ),
    (
        "concat-shapes",
        lambda x: ops.concat([x, _graph_input((4, 5))]),
        errors.ShapeError,
        r"^concat: shapes differ beside axis 0, got .*\[4, 6\].* and .*\[4, 5\].*, expected equal other extents",
    ),
    (
        "concat-ranks",
        lambda x: ops.concat_([x, _graph_input((4,))], 1),
        errors.ShapeError,
        r"^concat_: shapes differ",
    ),
    (
        "concat-dtypes",
        lambda x: ops.concat([x, _graph_input((4, 6), popsr.int32)]),
        errors.DTypeError,
        r"^concat: ",
    ),
    ("concat-axis", lambda x: ops.concat([x], 2), errors.AttributeValueError, r"^concat: "),
    ("concat-scalars", lambda x: ops.concat([_graph_input(())]), errors.AttributeValueError, r"^concat: "),
    (
        "concat-tensor",
        lambda x: ops.concat(x),
        errors.ArgumentTypeError,
        r"^concat: ts is not a Tensor list, got Ten",
    ),
    (
        "concat-number",
        lambda x: ops.concat_(3),
        errors.ArgumentTypeError,
        r"^concat_: ts is not a Tensor list, got 3",
    ),  # type: ignore[arg-type]
    (
        "concat-array",
        lambda x: ops.concat_([x, X]),
        errors.ArgumentTypeError,
        r"^concat_: ts\[1\] is not a Tensor",
    ),  # type: ignore[list-item]
    (
        "slice-lists",
        lambda x: ops.slice_(x, [0, 1], [2]),
        errors.AttributeValueError,
        r"^slice_: lists differ in",
    ),
    (
        "slice-step",
        lambda x: ops.slice_(x, 0, 2, 0),
        errors.AttributeValueError,
        r"^slice_: step must not be 0",
    ),
    ("slice-inverted", lambda x: ops.slice_(x, 2, 0), errors.ShapeError, r"^slice_: range is inverted"),
    ("slice-bound", lambda x: ops.slice_(x, "a"), errors.ArgumentTypeError, r"^slice_: bound is not an int"),
    ("slice-axis", lambda x: ops.slice_(x, 0, 1, axis=2), errors.AttributeValueError, r"^slice_: "),
    ("reshape", lambda x: ops.reshape_(x, (5,)), errors.ShapeError, r"^reshape_: numbers of elements differ"),
    (
        "reshape-0",
        lambda x: x.reshape_((0, -1)),
        errors.AttributeValueError,
        r"^reshape_: shape holds an extent",
    ),
    (
        "transpose",
        lambda x: ops.transpose_(x, (0, 0)),
        errors.AttributeValueError,
        r"^transpose_: axis given twice",
    ),
    (
        "transpose-1",
        lambda x: x.transpose_((1,)),
        errors.AttributeValueError,
        r"^transpose_: permutation has the wr",
    ),
    (
        "split-parts",
        lambda x: ops.split(x, 3),
        errors.ShapeError,
        r"^split: parts are not equal, got 3 of extent 4",
    ),
    (
        "split-0",
        lambda x: ops.split(x, 0),
        errors.AttributeValueError,
        r"^split: number of parts is not positive",
    ),
    (
        "split-sum",
        lambda x: ops.split(x, [1, 2]),
        errors.ShapeError,
        r"^split: extents do not fill axis 0, got",
    ),
    (
        "split-negative",
        lambda x: ops.split(x, [5, -1]),
        errors.AttributeValueError,
        r"^split: an extent is negative",
    ),
    (
        "split-axis",
        lambda x: ops.split(x, 2, 2),
        errors.AttributeValueError,
        r"^split: axis is out of range, got 2",
    ),
    ("split-type", lambda x: ops.split(X, 2), errors.ArgumentTypeError, r"^split: t is not a Tensor"),  # type: ignore[arg-type]
    ("split-word", lambda x: ops.split(x, "ab"), errors.ArgumentTypeError, r"^split: splits"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("build", "error", "match"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_refused(build: Callable[[popsr.Tensor], Any], error: type[Exception], match: str) -> None:
    ir = popsr.Ir()
    with ir.create_empty_graph() as graph:
        x = _graph_input((4, 6))
        with pytest.raises(error, match=match) as caught:
            build(x)
        assert isinstance(caught.value, errors.Error)
        assert [op.kind for op in graph.ops if op.kind in ("relu_", "add_", "concat", "split")] == []


def test_memory_passed_twice_is_modified_once() -> None:
    ir = popsr.Ir()

    def both(a: TensorByRef, b: TensorByRef) -> None:
        ops.relu_(a)
        ops.relu_(b)

    with ir.main_graph, popsr.in_sequence():
        x = make_variable(X)
        rows = ops.slice_(x, 1, 3)
        graph = ir.create_graph(both, x, rows)
        ops.call(graph, x, rows)
    with pytest.raises(
        errors.GraphError, match=r"Inplacing ambiguity detected\. call: '.*slice__out' is passed twice"
    ):
        popsr.Session(ir)


def test_views_that_share_elements_need_an_order() -> None:
    for start, ambiguous in ((2, False), (1, True)):
        ir = popsr.Ir()
        ir.options.enable_inplace_ambiguity_checking = True
        with ir.main_graph:
            x = make_variable(X)
            first, second = ops.slice_(x, 0, 2), ops.slice_(x, start, 4)
            ops.relu_(first)
            ops.relu_(second)
        if ambiguous:
            with pytest.raises(errors.GraphError, match=r"Inplacing ambiguity detected\. relu_: "):
                popsr.Session(ir)
        else:
            popsr.Session(ir)
