"""Ops of windows, sorts and padding with operands or attributes that they refuse."""

from __future__ import annotations

from typing import Any

import popsr
from popsr import errors, ops
from tests_py.ops.rows.refusals.refusal import Operands, Refusal
from tests_py.support.unchecked import unchecked

F64, BOOL = popsr.float64, popsr.bool
Shape, DType, Attr = errors.ShapeError, errors.DTypeError, errors.AttributeValueError
Graph, Argument = errors.GraphError, errors.ArgumentTypeError

_ROWS: dict[str, Any] = {"offset_dims": (1,), "index_map": (0,), "collapsed_dims": (0,)}


def _gather(t: Operands, **attrs: Any) -> Any:
    given = {"slice_sizes": (1, 3), **_ROWS, **attrs}
    return ops.gather_general(t(5, 3), t.i(4, 1), **given)


def _scatter(t: Operands, updates: popsr.Tensor, **attrs: Any) -> Any:
    return ops.scatter_general(t(5, 3), t.i(4, 1), updates, **{**_ROWS, **attrs})


REFUSALS: list[Refusal] = [
    Refusal(
        "range",
        lambda t: _gather(t, index_map=(2,)),
        Attr,
        r"gather_general: index_map are not axes, got \[2\], expected different ones from 0 to 1",
    ),
    Refusal(
        "order",
        lambda t: _gather(t, collapsed_dims=(1, 0)),
        Attr,
        r"gather_general: collapsed_dims are not ascending axes, got \[1, 0\]",
    ),
    Refusal(
        "roles",
        lambda t: _gather(t, operand_batching_dims=(0,), indices_batching_dims=(0,)),
        Attr,
        r"gather_general: axis has two roles, got 0",
    ),
    Refusal(
        "batching",
        lambda t: _gather(
            t, collapsed_dims=(), index_map=(1,), operand_batching_dims=(0,), indices_batching_dims=(0,)
        ),
        Shape,
        r"gather_general: batching axes do not match, got \[0\] of f32\[5, 3\] and \[0\] of i32\[4, 1\]",
    ),
    Refusal(
        "corners",
        lambda t: _gather(t, index_map=(0, 1)),
        Shape,
        r"gather_general: corners do not match, got i32\[4, 1\] for index_map \[0, 1\], expected 2 on the last",
    ),
    Refusal(
        "scalar-indices",
        lambda t: ops.gather_general(t(5, 3), t.i(), slice_sizes=(1, 3), **_ROWS),
        Shape,
        r"gather_general: indices have no axis of corners, got i32\[\]",
    ),
    Refusal(
        "offsets",
        lambda t: _gather(t, collapsed_dims=()),
        Attr,
        r"gather_general: offset_dims do not match, got \[1\], expected 2",
    ),
    Refusal(
        "sizes",
        lambda t: _gather(t, slice_sizes=(1, 4)),
        Shape,
        r"gather_general: slice_sizes do not fit, got \[1, 4\] in f32\[5, 3\]",
    ),
    Refusal(
        "collapsed-size",
        lambda t: _gather(t, slice_sizes=(2, 3)),
        Shape,
        r"gather_general: slice_sizes do not fit, got \[2, 3\]",
    ),
    Refusal("mode", lambda t: _gather(t, mode="drop"), Attr, r"gather_general: .*'drop'"),
    Refusal(
        "float-indices",
        lambda t: ops.gather_general(t(5, 3), t(4, 1), slice_sizes=(1, 3), **_ROWS),
        DType,
        r"gather_general: input indices has the wrong dtype, got f32\[4, 1\]",
    ),
    Refusal(
        "no-axes",
        lambda t: _gather(t, offset_dims=unchecked(1)),
        Argument,
        r"gather_general: offset_dims .*got 1",
    ),
    Refusal(
        "updates",
        lambda t: _scatter(t, t(4, 4)),
        Shape,
        r"scatter_general: updates do not match, got f32\[4, 4\] for f32\[5, 3\] and indices i32\[4, 1\]",
    ),
    Refusal("batch", lambda t: _scatter(t, t(3, 3)), Shape, r"scatter_general: updates do not match"),
    Refusal(
        "updates-dtype",
        lambda t: _scatter(t, t(4, 3, kind=F64)),
        DType,
        r"scatter_general: operands differ in dtype",
    ),
    Refusal(
        "sum-of-bool",
        lambda t: ops.scatter_general(t(5, 3, kind=BOOL), t.i(4, 1), t(4, 3, kind=BOOL), **_ROWS),
        DType,
        r"scatter_general: bool has no sum, got bool\[5, 3\], expected reduction 'none', 'min' or 'max'",
    ),
    Refusal("reduction", lambda t: _scatter(t, t(4, 3), reduction="add"), Attr, r"scatter_general: .*'add'"),
    Refusal(
        "keys",
        lambda t: ops.sort(t(3), num_keys=2),
        Attr,
        r"sort: num_keys is out of range, got 2, expected 1",
    ),
    Refusal(
        "shapes", lambda t: ops.sort(t(3), t(4)), Shape, r"sort: operands differ in shape, got f32\[3\] and"
    ),
    Refusal("axis", lambda t: ops.sort(t(3), axis=1), Attr, r"sort: axis out of range, got 1"),
    Refusal("scalar", lambda t: ops.sort(t()), Attr, r"sort: axis out of range, got -1"),
    Refusal("none", lambda t: ops.sort(), Graph, r"sort: no operands, expected at least one"),
    Refusal("axis-of-argsort", lambda t: ops.argsort(t(3), 1), Attr, r"argsort: axis is out of range, got 1"),
    Refusal("not-a-tensor", lambda t: ops.argsort(unchecked([1.0])), Argument, r"argsort: t is not a Tensor"),
    Refusal("axes", lambda t: ops.reverse(t(2, 3), (0, 0)), Attr, r"slice: axis given twice, got 0"),
    Refusal(
        "length",
        lambda t: ops.pad(t(2, 3), (1,), (0, 0)),
        Attr,
        r"pad: low, high or interior has a wrong length, got \[1\] for f32\[2, 3\], expected 2 numbers",
    ),
    Refusal(
        "interior",
        lambda t: ops.pad(t(2), (0,), (0,), (-1,)),
        Attr,
        r"pad: padding is out of range, got low 0",
    ),
    Refusal(
        "huge", lambda t: ops.pad(t(2), (2**62,), (0,)), Attr, r"pad: padding is out of range, got low 46"
    ),
    Refusal(
        "cut", lambda t: ops.pad(t(2), (-1,), (-2,)), Shape, r"pad: more is cut off than there is, got \[-1\]"
    ),
    Refusal(
        "value",
        lambda t: ops.pad(t(2), (0,), (0,), value=t(2)),
        Shape,
        r"pad: value is not a scalar, got f32",
    ),
    Refusal(
        "value-dtype",
        lambda t: ops.pad(t(2), (0,), (0,), value=t.i()),
        DType,
        r"pad: operands differ in dtype",
    ),
    *(
        Refusal(
            f"{op}-dim", lambda t, op=op: getattr(ops, op)(t(3), 1), Attr, rf"{op}: axis out of range, got 1"
        )
        for op in ("cumprod", "cummax", "cummin")
    ),
    Refusal(
        "window",
        lambda t: ops.reduce_window(t(2, 3), (2,)),
        Attr,
        r"reduce_window: window has a wrong length, got \[2\], expected 2 numbers",
    ),
    Refusal(
        "stride",
        lambda t: ops.reduce_window(t(4), (2,), strides=(0,)),
        Attr,
        r"reduce_window: layout of axis 0 is out of range, got window 2, stride 0",
    ),
    Refusal(
        "no-window",
        lambda t: ops.reduce_window(t(4), unchecked(None)),
        Argument,
        r"reduce_window: window .*None",
    ),
    Refusal(
        "bool",
        lambda t: ops.reduce_window(t(4, kind=BOOL), (2,)),
        DType,
        r"reduce_window: input t has the wrong",
    ),
]
