"""Output of print_tensor: blocks of replicas, layout, numbers; and that numbers can be read back."""

from __future__ import annotations

import contextlib
import io
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import popsr
from popsr import errors, ops, transforms
from popsr.ops import collectives
from tests_py.support.helpers import FLOATS, INTS, dtype, np_dtype

F32 = popsr.float32


def run(ir: popsr.Ir, **options: Any) -> str:
    """Python's standard error of one run."""
    with popsr.Session(ir, **options) as session, contextlib.redirect_stderr(io.StringIO()) as text:
        session.run()
    return text.getvalue()


def printed(value: Any, kind: str = "float32", **options: Any) -> str:
    """The text of one value, without its title."""
    ir = popsr.Ir()
    with ir.main_graph:
        ops.print_tensor(popsr.constant(np.asarray(value, np_dtype(kind)), dtype(kind)), "", **options)
    text = run(ir)
    assert text.startswith(": ")
    assert text.endswith("\n\n")
    return text[2:-2]


# Blocks

SHARDS = """w_shards_replica_0: [
 [1.0 1.0]
 [1.0 1.0]
]

w_shards_replica_1: [
 [2.0 2.0]
 [2.0 2.0]
]

w_shards_replica_2: [
 [1.0 1.0]
 [1.0 1.0]
]

w_shards_replica_3: [
 [2.0 2.0]
 [2.0 2.0]
]

y_shards_replica_0: [2.0 2.0]

y_shards_replica_1: [4.0 4.0]

y_shards_replica_2: [2.0 2.0]

y_shards_replica_3: [4.0 4.0]

y_full_replica_0: [2.0 2.0 4.0 4.0]

y_full_replica_1: [2.0 2.0 4.0 4.0]

y_full_replica_2: [2.0 2.0 4.0 4.0]

y_full_replica_3: [2.0 2.0 4.0 4.0]

"""


def tensor_parallel() -> popsr.Ir:
    """A column-parallel linear layer: weights in two shards, each on two replicas."""
    ir = popsr.Ir(replication=4)
    shards = ir.replica_grouping(stride=2, group_size=2)
    with ir.main_graph:
        weights = np.stack([np.full((2, 2), i + 1, np.float32) for i in range(2)])
        w = popsr.variable(weights, replica_grouping=shards)

        def linear(x: popsr.Tensor, w: popsr.Tensor) -> popsr.Tensor:
            ops.print_tensor(w, title="w_shards", digits=2)
            y = x @ w
            ops.print_tensor(y, title="y_shards", digits=2)
            full = collectives.replicated_all_gather(y, group=shards.transpose(), axis=-1)
            ops.print_tensor(full, title="y_full", digits=2)
            return full

        x = popsr.constant(np.ones(2), F32)
        ops.call(ir.create_graph(linear, x, w), x, w)
    return ir


@pytest.mark.parametrize("options", [{}, {"dedup": False}, {"check": True}], ids=str)
def test_every_replica_has_a_block(options: dict[str, Any]) -> None:
    assert run(tensor_parallel(), **options) == SHARDS


def test_titles() -> None:
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        c = popsr.constant([1.0], name="c")
        ops.print_tensor(c)
        ops.print_tensor(c, "[own]")
        ops.print_tensor(c, print_self=False)
    assert run(ir) == "print_c: [1.0000000]\n\n[own]: [1.0000000]\n\n"


def test_text_goes_where_standard_error_is_when_the_program_runs(capsys: pytest.CaptureFixture[str]) -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        ops.print_tensor(popsr.constant(7), "seven")
    with popsr.Session(ir) as session:
        session.run()
        session.run()
    assert capsys.readouterr() == ("", "seven: 7\n\n" * 2)


@pytest.mark.parametrize(("self", "gradient"), [(True, True), (False, True), (True, False)])
def test_gradients_are_printed_where_they_flow(self: bool, gradient: bool) -> None:
    def fn(x: popsr.Tensor) -> popsr.Tensor:
        shown = ops.print_tensor(x, "x", print_self=self, print_gradient=gradient, digits=3, separator=",")
        return shown * 2.0

    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        x = popsr.constant([1.0, 2.0])
        graph = ir.create_graph(fn, x)
        call = ops.call_with_info(graph, x)
        info = transforms.autodiff(graph)
        ops.call(info.graph, popsr.constant([5.0, -0.5]), inputs_dict=info.inputs_dict(call))
    blocks = [f"x_replica_{r}: [1.00,2.00]\n\n" for r in range(2) if self]
    blocks += [f"x_gradient_replica_{r}: [10.0,-1.0]\n\n" for r in range(2) if gradient]
    assert run(ir) == "".join(blocks)


def test_a_result_that_nobody_uses_is_printed() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        ops.print_tensor(popsr.constant([1]) + 1, "unused")
    assert run(ir) == "unused: [2]\n\n"


# Layout

LAYOUTS: dict[str, tuple[Any, str, dict[str, Any], str]] = {
    "scalar": (2.5, "float32", {"digits": 2}, "2.5"),
    "row": ([1, -20, 3], "int32", {}, "[  1 -20   3]"),
    "matrix": ([[1, 2], [3, 40]], "int8", {}, "[\n [ 1  2]\n [ 3 40]\n]"),
    "cube": ([[[1], [2]], [[3], [4]]], "uint8", {}, "[\n [\n  [1]\n  [2]\n ]\n [\n  [3]\n  [4]\n ]\n]"),
    "empty": (np.zeros(0), "float32", {}, "[]"),
    "no rows": (np.zeros((0, 3)), "float32", {}, "[]"),
    "empty rows": (np.zeros((2, 0)), "float32", {}, "[]"),
    "one": ([[1]], "int32", {}, "[\n [1]\n]"),
    "bool": ([True, False], "bool", {}, "[ True False]"),
    "not aligned": ([1, -20, 3], "int32", {"digits": 0}, "[1 -20 3]"),
    "characters": (
        [[1, 2], [3, 4]],
        "int32",
        {"separator": ",", "open_bracket": "(", "close_bracket": "⟩"},
        "(\n (1,2⟩\n (3,4⟩\n⟩",
    ),
    "threshold reached": (range(5), "int32", {"summarise_threshold": 5, "edge_items": 1}, "[0 1 2 3 4]"),
    "threshold passed": (range(5), "int32", {"summarise_threshold": 4, "edge_items": 1}, "[0 ... 4]"),
    "threshold 0": (range(5), "int32", {"summarise_threshold": 0, "edge_items": 1}, "[0 1 2 3 4]"),
    "edge items": (range(9), "int32", {"summarise_threshold": 4, "edge_items": 2}, "[0 1 ... 7 8]"),
    "nothing between": (range(4), "int32", {"summarise_threshold": 1, "edge_items": 2}, "[0 1 2 3]"),
    "no edges": (range(4), "int32", {"summarise_threshold": 1, "edge_items": 0}, "[...]"),
    "summarised rows": (
        np.arange(12).reshape(3, 4),
        "int32",
        {"summarise_threshold": 4, "edge_items": 1},
        "[\n [ 0 ...  3]\n ...\n [ 8 ... 11]\n]",
    ),
    "width": (range(6), "int32", {"max_line_width": 8}, "[0 1 2\n 3 4 5]"),
    "width counts the end": (range(3), "int32", {"max_line_width": 8}, "[0 1\n 2]"),
    "width with separators": (range(5), "int32", {"max_line_width": 7, "separator": ","}, "[0,1,\n 2,3,4]"),
    "width of rows": ([[10, 2, 3]], "int32", {"max_line_width": 7}, "[\n [10  2\n   3]\n]"),
    "width too small": (range(3), "int32", {"max_line_width": 1}, "[0\n 1\n 2]"),
    "width 0": (range(40), "int32", {"max_line_width": 0, "digits": 0}, f"[{' '.join(map(str, range(40)))}]"),
}


@pytest.mark.parametrize("what", LAYOUTS)
def test_layout(what: str) -> None:
    value, kind, options, text = LAYOUTS[what]
    assert printed(list(value) if isinstance(value, range) else value, kind, **options) == text


# Floats

NAN, INF = np.nan, np.inf
NUMBERS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "eight digits": ([1.0, 2.5], {}, "[1.0000000 2.5000000]"),
    "the greatest has them": ([100.25, -2.5], {"digits": 5}, "[100.25  -2.50]"),
    "rounded to one more": ([9.96, 1.0], {"digits": 2}, "[10.  1.]"),
    "ties to even": ([0.125, 0.375], {"digits": 3, "float_format": "fixed"}, "[0.12 0.38]"),
    "small ones keep half": ([1.0, 0.0625], {"digits": 4}, "[1.000 0.062]"),
    "small ones would not": ([1.0, 0.0005], {"digits": 4}, "[1.000e+00 5.000e-04]"),
    "too great": ([12345.0], {"digits": 4}, "[1.234e+04]"),
    "too great but fixed": ([12345.0], {"digits": 4, "float_format": "fixed"}, "[12345.]"),
    "scientific": ([1.0, -2.5], {"digits": 2, "float_format": "scientific"}, "[ 1.0e+00 -2.5e+00]"),
    "one digit": ([3.0], {"digits": 1, "float_format": "scientific"}, "[3e+00]"),
    "none": ([1.0, -0.25, 1e20], {"float_format": "none"}, "[1.0 -0.25 1e+20]"),
    "no digits": ([1.0, -0.25], {"digits": 0, "float_format": "fixed"}, "[1.0 -0.25]"),
    "zeros": ([0.0, -0.0], {"digits": 2}, "[ 0.0 -0.0]"),
    "special": ([NAN, INF, -INF, 1.0], {"digits": 2}, "[ nan  inf -inf  1.0]"),
    "only special": ([NAN, INF], {}, "[nan inf]"),
    "hidden ones do not matter": (
        [1.0, 1e30, 2.0],
        {"digits": 2, "summarise_threshold": 1, "edge_items": 1},
        "[1.0 ... 2.0]",
    ),
}


@pytest.mark.parametrize("what", NUMBERS)
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_floats(what: str, kind: str) -> None:
    value, options, text = NUMBERS[what]
    assert printed(value, kind, **options) == text


def values_in(text: str) -> list[str]:
    return re.sub(r"[\[\]]", " ", text).split()


def arrays(kind: str) -> st.SearchStrategy[Any]:
    native = "float32" if kind == "bfloat16" else kind
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    return hnp.arrays(native, shapes).map(lambda a: a.astype(np_dtype(kind)))


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("kind", FLOATS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_enough_digits_give_the_value_back(kind: str, data: st.DataObject) -> None:
    value = data.draw(arrays(kind))
    digits = 17 if kind == "float64" else 9
    for options in ({"float_format": "scientific", "digits": digits}, {"float_format": "none"}):
        width = data.draw(st.sampled_from([0, 20, 75]))
        text = printed(value, kind, summarise_threshold=0, max_line_width=width, **options)
        back = np.array([float(x) for x in values_in(text)], np.float64).astype(np_dtype(kind))
        # As float64: NumPy does not know that a NaN of bfloat16 is one.
        np.testing.assert_array_equal(back.astype(np.float64), value.reshape(-1).astype(np.float64))
        if width and options["float_format"] == "none":
            assert all(len(line) <= max(width, 30) for line in text.split("\n"))


@pytest.mark.parametrize("digits", [1, 2, 5, 8])
@settings(max_examples=40)
@given(value=hnp.arrays("float32", st.integers(1, 6), elements=st.floats(width=32, allow_nan=False)))
def test_auto_keeps_half_of_the_digits(digits: int, value: Any) -> None:
    got = [float(x) for x in values_in(printed(value, digits=digits))]
    for shown, x in zip(got, value.astype(float), strict=True):
        if np.isfinite(x):
            assert abs(shown - x) <= 0.5000001 * 10.0 ** (1 - (digits + 1) // 2) * abs(x)
        else:
            assert shown == x


@pytest.mark.parametrize("kind", INTS)
@settings(max_examples=15)
@given(data=st.data())
def test_integers_are_exact(kind: str, data: st.DataObject) -> None:
    value = data.draw(hnp.arrays(kind, hnp.array_shapes(max_dims=2, max_side=4)))
    got = values_in(printed(value, kind, digits=data.draw(st.sampled_from([0, 1, 8])), summarise_threshold=0))
    assert [int(x) for x in got] == value.reshape(-1).tolist()


# Errors

BAD: dict[str, tuple[type[Exception], type[Exception], dict[str, Any], str]] = {
    "format": (errors.UnknownNameError, KeyError, {"float_format": "hex"}, r"float_format, got 'hex'"),
    "separator": (errors.AttributeValueError, ValueError, {"separator": ", "}, r"separator is not one char"),
    "no separator": (errors.AttributeValueError, ValueError, {"separator": ""}, r"separator is not one char"),
    "open": (errors.AttributeValueError, ValueError, {"open_bracket": "<<"}, r"open_bracket is not one"),
    "close": (errors.AttributeValueError, ValueError, {"close_bracket": ""}, r"close_bracket is not one"),
    "digits": (errors.AttributeValueError, ValueError, {"digits": -1}, r"negative digits, got -1"),
    "edges": (errors.AttributeValueError, ValueError, {"edge_items": -1}, r"negative edge_items, got -1"),
    "width": (errors.AttributeValueError, ValueError, {"max_line_width": -1}, r"negative max_line_width"),
    "threshold": (errors.AttributeValueError, ValueError, {"summarise_threshold": -2}, r"negative summarise"),
    "title": (errors.Error, Exception, {"title": 3}, r"title"),
}


@pytest.mark.parametrize("what", BAD)
def test_errors(what: str) -> None:
    error, builtin, options, match = BAD[what]
    ir = popsr.Ir()
    with ir.main_graph:
        t = popsr.constant([1.0])
        with pytest.raises(error, match=rf"^print_tensor: .*{match}") as caught:
            ops.print_tensor(t, **options)
        assert isinstance(caught.value, builtin)
    assert "\n" not in str(caught.value)
    assert ir.main_graph.ops == ()
