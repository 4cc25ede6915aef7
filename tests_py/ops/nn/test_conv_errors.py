"""Convolutions with wrong arguments are refused; the hints that have no effect are checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import popsr
from popsr import errors, ops

F16, F32, BF16 = popsr.float16, popsr.float32, popsr.bfloat16
Attrs = dict[str, Any]
Shape, DType, Attr = errors.ShapeError, errors.DTypeError, errors.AttributeValueError
Argument = errors.ArgumentTypeError
T2, W2 = (1, 4, 5, 6), (6, 4, 3, 2)
Row = tuple[tuple[int, ...], tuple[int, ...], Attrs, type[Exception], str]

BOTH: list[Row] = [
    (
        (4, 5),
        (4, 4),
        {},
        Shape,
        r"t does not have 1 to 3 spatial axes, got \[4, 5\], expected \[N, C, spatial",
    ),
    ((1,) * 6, (1,) * 6, {}, Shape, r"t does not have 1 to 3 spatial axes, got \[1, 1, 1, 1, 1, 1\]"),
    (T2, (6, 4, 3), {}, Shape, r"weight and t differ in rank, got \[6, 4, 3\] and \[1, 4, 5, 6\]"),
    (T2, (4, 4, 0, 2), {}, Shape, r"the kernel has no elements, got weight \[4, 4, 0, 2\]"),
    ((1, 4, 2**31, 1), (4, 4, 1, 1), {}, Shape, r"t is too large, got \[1, 4, 2147483648, 1\]"),
    (T2, (4, 4, 3, 2), {"stride": (1,)}, Attr, r"stride has a wrong length, got \[1\], expected 2 numbers"),
    (
        T2,
        (4, 4, 3, 2),
        {"stride": (0, 1)},
        Attr,
        r"stride is out of range, got \[0, 1\], expected 1 <= stride",
    ),
    (T2, (4, 4, 3, 2), {"stride": (1, 2**31)}, Attr, r"stride is out of range, got \[1, 2147483648\]"),
    (T2, (4, 4, 3, 2), {"stride": 2}, Argument, r"stride is not a sequence of ints, got 2"),
    (T2, (4, 4, 3, 2), {"stride": ("a", "b")}, errors.Error, r"stride .*'a'"),
    (T2, (4, 4, 3, 2), {"dilation": (1, 1, 1)}, Attr, r"dilation has a wrong length, got \[1, 1, 1\]"),
    (T2, (4, 4, 3, 2), {"dilation": (1, -1)}, Attr, r"dilation is out of range, got \[1, -1\]"),
    (
        T2,
        (4, 4, 3, 2),
        {"padding": (1, 1)},
        Attr,
        r"padding has a wrong length, got \[1, 1\], expected 4 numbers",
    ),
    (T2, (4, 4, 3, 2), {"padding": (0, 0, -1, 0)}, Attr, r"padding is out of range, got \[0, 0, -1, 0\]"),
    (
        (1, 4, 5),
        (4, 4, 3),
        {"stride": (2, 2)},
        Attr,
        r"stride has a wrong length, got \[2, 2\], expected 1 num",
    ),
    (T2, (4, 4, 3, 2), {"groups": 0}, Attr, r"groups is not positive, got 0, expected 1 or more"),
    (T2, (4, 4, 3, 2), {"groups": "2"}, errors.Error, r"groups .*'2'"),
    (
        T2,
        (4, 4, 3, 2),
        {"pad_type": "same"},
        Attr,
        r"unknown pad_type, got 'same', expected one of 'not_set', 'same_upper'",
    ),
    (T2, (4, 4, 3, 2), {"pad_type": 1}, errors.Error, r"pad_type .*1"),
    (
        T2,
        (4, 4, 3, 2),
        {"partials_types": ["int"]},
        Attr,
        r"unknown partials_types entry, got 'int', expected one",
    ),
    (T2, (4, 4, 3, 2), {"partials_types": "half"}, Argument, r"partials_types is not a list, got 'half'"),
    (
        T2,
        (4, 4, 3, 2),
        {"available_memory_proportions": [1.5]},
        Attr,
        r"available_memory_.* got 1.5, expected 0",
    ),
    (T2, (4, 4, 3, 2), {"available_memory_proportions": ["a"]}, Attr, r"available_memory_.* got 'a'"),
    (T2, (4, 4, 3, 2), {"available_memory_proportions": 0.5}, Argument, r"available_memory_.* is not a list"),
    (T2, (4, 4, 3, 2), {"enable_conv_dithering": [2]}, Attr, r"unknown enable_conv_dithering entry, got 2"),
]
CONV: list[Row] = [
    (
        T2,
        (6, 3, 3, 2),
        {},
        Shape,
        r"weight does not fit the channels, got \[6, 3, 3, 2\] for \[1, 4, 5, 6\] in 1 g",
    ),
    (
        T2,
        (6, 2, 3, 2),
        {"groups": 4},
        Shape,
        r"weight does not fit the channels, .* in 4 groups, expected weight.s",
    ),
    (T2, (5, 2, 3, 2), {"groups": 2}, Shape, r"weight does not fit .*weight.shape\[0\] a multiple of groups"),
    (T2, (6, 1, 3, 2), {"groups": 3}, Shape, r"weight does not fit .* in 3 groups"),
    (
        T2,
        (6, 4, 6, 2),
        {},
        Shape,
        r"the kernel is larger than the padded input, got 6 positions for 5 along spatial",
    ),
    (
        T2,
        (6, 4, 3, 2),
        {"dilation": (1, 6)},
        Shape,
        r"larger than the padded input, got 7 positions for 6 along .* 1",
    ),
    (
        T2,
        (6, 4, 3, 7),
        {"pad_type": "valid", "padding": (1, 1, 1, 1)},
        Shape,
        r"larger than the padded input",
    ),
    (
        (1, 1, 1, 1, 1),
        (1, 1, 1, 1, 1),
        {"padding": (2**31 - 1,) * 6},
        Shape,
        r"the result is too large, got \[1, 1, 4294967295,",
    ),
]
TRANSPOSE: list[Row] = [
    (
        T2,
        (6, 4, 3, 2),
        {},
        Shape,
        r"weight does not fit the channels, .* expected weight.shape\[0\] == t.shape\[1\]",
    ),
    (T2, (4, 4, 3, 2), {"groups": 3}, Shape, r"weight does not fit the channels, .* in 3 groups"),
    (
        T2,
        (4, 4, 3, 2),
        {"padding": (5, 0, 3, 0)},
        Shape,
        r"padding takes more than .* 5 and 3 for 7 positions",
    ),
    (
        T2,
        (4, 4, 3, 2),
        {"output_padding": (1, 0)},
        Attr,
        r"output_padding is too large, got \[1, 0\], expected less",
    ),
    (T2, (4, 4, 3, 2), {"output_padding": (0,)}, Attr, r"output_padding has a wrong length, got \[0\]"),
    (T2, (4, 4, 3, 2), {"output_padding": (-1, 0)}, Attr, r"output_padding is out of range, got \[-1, 0\]"),
    (
        T2,
        (4, 4, 3, 2),
        {"output_shape": (9, 7)},
        Attr,
        r"output_shape is larger .* got \[9, 7\], expected at most 7",
    ),
    (T2, (4, 4, 3, 2), {"output_shape": (7,)}, Attr, r"output_shape has a wrong length, got \[7\]"),
    (T2, (4, 4, 3, 2), {"output_shape": (7, -1)}, Attr, r"output_shape is out of range, got \[7, -1\]"),
]


def _rows() -> list[Any]:
    named: list[tuple[Callable[..., Any], list[Row]]] = [
        (ops.conv, [*BOTH, *CONV]),
        (ops.conv_transpose, [*BOTH, *TRANSPOSE]),
    ]
    return [(op, *row) for op, rows in named for row in rows]


@pytest.mark.parametrize(("op", "t", "weight", "attrs", "error", "match"), _rows())
def test_wrong_arguments(
    op: Callable[..., Any],
    t: tuple[int, ...],
    weight: tuple[int, ...],
    attrs: Attrs,
    error: type[Exception],
    match: str,
) -> None:
    with popsr.Ir().create_empty_graph() as graph:
        x, w = popsr.graph_input(t, F32), popsr.graph_input(weight, F32)
        with pytest.raises(error, match=rf"^{op.__name__}: .*{match}") as caught:
            op(x, w, **attrs)
        assert isinstance(caught.value, errors.Error)
        assert "\n" not in str(caught.value)
        assert not graph.ops, "nothing was appended"


@pytest.mark.parametrize("op", [ops.conv, ops.conv_transpose])
def test_different_dtypes(op: Callable[..., Any]) -> None:
    with popsr.Ir().create_empty_graph():
        x, w = popsr.graph_input((1, 2, 3), F16), popsr.graph_input((2, 2, 2), BF16)
        with pytest.raises(DType, match=rf"^{op.__name__}: .*f16\[1, 2, 3\] and bf16\[2, 2, 2\]"):
            op(x, w)


# --- hints ----------------------------------------------------------------------------------------------------------


def test_multi_conv_options_are_checked_hints() -> None:
    hints = ops.multi_conv_options(None, {"partials_types": ["HALF"]}, [0.5, 1], None, [0, 1])
    assert hints.available_memory_proportions == (0.5, 1)
    assert hints.partials_types == ("HALF",)
    assert hints.enable_conv_dithering == (0, 1)
    assert ops.multi_conv_options(
        None, {"partials_types": ["float"]}, None, ["half"], None
    ).partials_types == ("half",)
    with pytest.raises(Attr, match=r"^multi_conv_options: unknown partials_types entry, got 'double'"):
        ops.multi_conv_options(None, {}, None, ["double"], None)
    with pytest.raises(Argument, match=r"^multi_conv_options: attr_param is not a mapping"):
        ops.multi_conv_options(None, [], None, None, None)  # type: ignore[arg-type]
