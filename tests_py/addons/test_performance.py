"""popsr.addons.performance_utils: floating point operations, counted by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import popsr
from popsr import errors, ops, transforms
from popsr.addons import performance_utils as performance
from popsr.ops import var_updates
from tests_py.support.helpers import assert_refused
from tests_py.support.unchecked import unchecked

F32 = popsr.float32
Argument, Attr = errors.ArgumentTypeError, errors.AttributeValueError


def t(*shape: int, dtype: Any = F32) -> popsr.Tensor:
    """An input of the current graph."""
    return popsr.graph_input(shape, dtype)


def constant(*shape: int) -> popsr.Tensor:
    return popsr.constant(np.ones(shape, np.float32))


ONE_OP: list[tuple[str, Callable[[], Any], int]] = [
    ("matmul", lambda: ops.matmul(t(2, 3), t(3, 5)), 2 * 3 * (2 * 5)),
    ("matmul", lambda: ops.matmul(t(3), t(3, 5)), 2 * 3 * 5),
    ("matmul", lambda: ops.matmul(t(7, 2, 3), t(1, 3, 5)), 2 * 3 * (7 * 2 * 5)),
    ("matmul", lambda: ops.matmul(t(3), t(3)), 2 * 3),
    ("conv", lambda: ops.conv(t(2, 4, 5, 5), t(6, 4, 3, 3)), 2 * (2 * 6 * 3 * 3) * (4 * 3 * 3)),
    ("conv", lambda: ops.conv(t(2, 4, 5, 5), t(6, 2, 3, 3), groups=2), 2 * (2 * 6 * 3 * 3) * (2 * 3 * 3)),
    (
        "conv_transpose",
        lambda: ops.conv_transpose(t(2, 4, 5, 5), t(4, 6, 3, 3)),
        2 * (2 * 4 * 5 * 5) * (6 * 3 * 3),
    ),
    ("add", lambda: t(4, 3) + t(3), 12),
    ("mul", lambda: t(4, 1) * t(1, 3), 12),
    ("sub", lambda: t(4) - t(4), 4),
    ("div", lambda: t() / t(), 1),
    ("pow", lambda: ops.pow(t(4), t(4)), 4),
    ("maximum", lambda: ops.maximum(t(4), t(4)), 4),
    ("exp", lambda: ops.exp(t(4, 3)), 12),
    ("relu_", lambda: ops.relu_(t(4, 3)), 12),
    ("gelu", lambda: ops.gelu(t(4, 3)), 12),
    ("scaled_add", lambda: ops.scaled_add(t(4), t(4), 2.0, 3.0), 12),
    ("sum", lambda: ops.sum(t(4, 3), [0]), 12),
    ("mean", lambda: ops.mean(t(4, 3)), 12),
    ("var", lambda: ops.var(t(4, 3), [0]), 4 * 12),
    ("erf", lambda: ops.erf(t(4, 3)), 12),
    ("sumsquare", lambda: ops.sumsquare(t(4, 3), [1]), 24),
    ("softmax", lambda: ops.softmax(t(4, 3), 1), 60),
    ("group_norm", lambda: ops.group_norm(t(4, 6), t(6), t(6), 3), 7 * 24 + 5 * 4 * 3),
    ("layer_norm", lambda: ops.layer_norm(t(4, 6), t(6), t(6)), 7 * 24 + 5 * 4),
    ("accumulate_", lambda: var_updates.accumulate_(t(4), t(4)), 4),
]


@pytest.mark.parametrize(
    ("kind", "build", "flops"), ONE_OP, ids=[f"{i}-{row[0]}" for i, row in enumerate(ONE_OP)]
)
def test_one_op(kind: str, build: Callable[[], Any], flops: int) -> None:
    with popsr.Ir().create_empty_graph() as graph:
        build()
    (op,) = graph.ops
    assert performance.evaluate_FLOPs(graph) == {kind: {op.id: flops}, "TOT": flops}
    own = {"matmul": "matmul_flops", "group_norm": "group_norm_flops", "layer_norm": "group_norm_flops"}
    if kind in (*own, "add", "mul", "sub", "div", "pow"):
        for each in (op, *unchecked(graph)._pb_graph.getOps()):
            assert getattr(performance, own.get(kind, "elementwise_binary_flops"))(each) == flops


@pytest.mark.parametrize(
    "build",
    [
        lambda: ops.transpose(t(2, 3)),
        lambda: ops.gather(t(4), t(2, dtype=popsr.int32)),
        lambda: ops.equal(t(4), t(4)),
        lambda: ops.collectives.replicated_all_reduce(t(4)),
        lambda: ops.cast(t(4), popsr.float16),
        lambda: None,
    ],
)
def test_moving_and_comparing_counts_nothing(build: Callable[[], Any]) -> None:
    with popsr.Ir().create_empty_graph() as graph:
        build()
    assert performance.evaluate_FLOPs(graph) == {"TOT": 0}


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5))
def test_gradients_of_a_product_count_two_products(m: int, k: int, n: int) -> None:
    ir = popsr.Ir()
    graph = ir.create_graph(ops.matmul, popsr.TensorSpec((m, k), F32), popsr.TensorSpec((k, n), F32))
    gradient = transforms.autodiff(graph).graph
    assert (
        performance.evaluate_FLOPs(gradient)["TOT"]
        == 2 * performance.evaluate_FLOPs(graph)["TOT"]
        == 4 * m * k * n
    )


def test_gradients_of_a_convolution_count_two_convolutions() -> None:
    ir = popsr.Ir()
    graph = ir.create_graph(
        ops.conv, popsr.TensorSpec((2, 4, 5, 5), F32), popsr.TensorSpec((6, 4, 3, 3), F32)
    )
    gradient = transforms.autodiff(graph).graph
    assert performance.evaluate_FLOPs(gradient)["TOT"] == 2 * performance.evaluate_FLOPs(graph)["TOT"]


def _program(replication: int = 1) -> tuple[popsr.Ir, popsr.Graph, popsr.Graph]:
    """Main graph: add (4), a call of [mul (4)], 3 times of [call of [mul], exp (4)], a condition."""
    ir = popsr.Ir(replication=replication)
    with ir.main_graph, popsr.in_sequence():
        x = popsr.variable(np.ones(4, np.float32), name="x")
        inner = ir.create_graph(lambda x: x * x, x)
        outer = ir.create_graph(lambda x: ops.exp(*ops.call(inner, x)), x)
        y = x + x
        ops.call(inner, y)
        ops.repeat(outer, 3, y)
        ops.conditional(popsr.constant(True), inner, outer, [x], [x])
        ops.transpose(popsr.variable(np.ones((2, 2), np.float32)))
    return ir, inner, outer


def _ids(graph: popsr.Graph) -> dict[str, int]:
    return {op.kind: op.id for op in graph.ops}


def test_called_graphs_are_nested_and_loops_multiply() -> None:
    ir, inner, outer = _program()
    graph = ir.main_graph
    ids = _ids(graph)
    in_inner, in_outer = _ids(inner), _ids(outer)

    def nested(times: int) -> dict[str, Any]:
        call = {"mul": {in_inner["mul"]: 4 * times}, "TOT": 4 * times}
        return {"call": {in_outer["call"]: call}, "exp": {in_outer["exp"]: 4 * times}, "TOT": 8 * times}

    wanted = {
        "add": {ids["add"]: 4},
        "call": {ids["call"]: {"mul": {in_inner["mul"]: 4}, "TOT": 4}},
        "repeat": {ids["repeat"]: nested(3)},
        "conditional": {ids["conditional"]: nested(1)},  # the branch with more
        "TOT": 4 + 4 + 24 + 8,
    }
    assert performance.evaluate_FLOPs(graph) == wanted
    assert performance.evaluate_ir_FLOPs(ir) == wanted
    assert performance.total_FLOPs(ir) == 40


def test_every_replica_counts() -> None:
    ir, *_ = _program(replication=8)
    assert performance.total_FLOPs(ir) == 8 * 40
    assert performance.evaluate_FLOPs(ir.main_graph)["TOT"] == 40
    assert performance.evaluate_ir_FLOPs(ir)["add"] == {_ids(ir.main_graph)["add"]: 32}


def test_totals_are_printed_by_op_or_by_place(capsys: pytest.CaptureFixture[str]) -> None:
    ir, *_ = _program(replication=1000)
    breakdown = performance.evaluate_ir_FLOPs(ir)
    performance.print_FLOPs(breakdown)
    assert capsys.readouterr().out.splitlines() == [
        "mul: 20.000 KFLOPs",
        "exp: 16.000 KFLOPs",
        "add: 4.000 KFLOPs",
        "total: 40.000 KFLOPs",
    ]
    performance.print_FLOPs(breakdown, mode="flat", numerical_format="M")
    ids = _ids(ir.main_graph)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 7
    assert lines[0] == f"add.{ids['add']}: 0.004 MFLOPs"
    assert lines[1].startswith(f"call.{ids['call']}/mul.")
    assert lines[2].startswith(f"repeat.{ids['repeat']}/call.")
    assert lines[-1] == "total: 0.040 MFLOPs"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((0,), "0 FLOPs"),
        ((999,), "999 FLOPs"),
        ((1000,), "1.000 KFLOPs"),
        ((999_999,), "999.999 KFLOPs"),
        ((999_999_999,), "1.000 GFLOPs"),
        ((1_500_000,), "1.500 MFLOPs"),
        ((2 * 10**16,), "20000.000 TFLOPs"),
        ((1_500_000, "K"), "1500.000 KFLOPs"),
        ((1_500_000, "G"), "0.002 GFLOPs"),
        ((1_500_000, "T"), "0.000 TFLOPs"),
    ],
)
def test_numbers_as_text(arguments: tuple[Any, ...], text: str) -> None:
    assert performance.format_flops_scientific(*arguments) == text


@given(st.integers(0, 10**15))
def test_texts_are_the_numbers(number: int) -> None:
    value, unit = performance.format_flops_scientific(number).split()
    scale = {"FLOPs": 1, "KFLOPs": 1e3, "MFLOPs": 1e6, "GFLOPs": 1e9, "TFLOPs": 1e12}[unit]
    assert math.isclose(float(value) * scale, number, rel_tol=5.01e-4)
    assert 1 <= float(value) <= 1000 or number == 0


with popsr.Ir().create_empty_graph() as GRAPH:
    ops.exp(t(3))
(EXP,) = GRAPH.ops
REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: performance.total_FLOPs(unchecked(GRAPH)), Argument, "^evaluate_ir_FLOPs: not an Ir, got graph"),
    (lambda: performance.evaluate_ir_FLOPs(unchecked(1)), Argument, "^evaluate_ir_FLOPs: not an Ir, got 1"),
    (lambda: performance.evaluate_FLOPs(unchecked(GRAPH.ir)), Argument, "^evaluate_FLOPs: not a Graph, got "),
    (
        lambda: performance.matmul_flops(EXP),
        Argument,
        "^matmul_flops: not such an op, got .*, expected one of matmul",
    ),
    (
        lambda: performance.group_norm_flops(unchecked(1)),
        Argument,
        "^group_norm_flops: not such an op, got 1, expected one of ",
    ),
    (
        lambda: performance.elementwise_binary_flops(EXP),
        Argument,
        "^elementwise_binary_flops: not such an op, got ",
    ),
    (
        lambda: performance.print_FLOPs({"TOT": 1}, unchecked("kind")),
        Attr,
        "^print_FLOPs: unknown mode, got 'kind', expected one",
    ),
    (
        lambda: performance.print_FLOPs({"TOT": 1}, "type", unchecked("P")),
        Attr,
        "unknown format, got 'P', expected one of",
    ),
    (
        lambda: performance.format_flops_scientific(1, unchecked("k")),
        Attr,
        "^format_flops_scientific: unknown format, got 'k'",
    ),
]


@pytest.mark.parametrize(("call", "error", "match"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_refused(call: Callable[[], Any], error: type[Exception], match: str) -> None:
    assert_refused(call, error, match)
