"""Ops with indices, with operands or attributes that they refuse."""

from __future__ import annotations

from typing import Any

import popsr
from popsr import errors, ops
from tests_py.ops.rows.refusals.refusal import Operands, Refusal

F16, BF16, F32, F64, I32 = popsr.float16, popsr.bfloat16, popsr.float32, popsr.float64, popsr.int32
Shape, DType, Attr = errors.ShapeError, errors.DTypeError, errors.AttributeValueError
Graph, Replica, Argument = errors.GraphError, errors.ReplicaError, errors.ArgumentTypeError


def _onehot(t: Operands, /, **given: Any) -> Any:
    operands = {"t": t.i(2), "num_classes": popsr.constant(3), "values": t(2), "axis": 0}
    return ops.onehot(**{**operands, **given})


REFUSALS: list[Refusal] = [
    Refusal("gather-axis", lambda t: ops.gather(t(2, 3), t.i(2), 2), Attr, r"gather: axis .* got 2"),
    Refusal("gather-scalar", lambda t: ops.gather(t(), t.i(2)), Attr, r"gather: axis .* got 0"),
    Refusal(
        "gather-floats",
        lambda t: ops.gather(t(2), t(2)),
        DType,
        r"gather: input indices has the wrong dtype, got f32",
    ),
    Refusal(
        "gather-list", lambda t: ops.gather(t(2), 0), Argument, r"gather: indices is not a Tensor, got int 0"
    ),
    Refusal("tied-axis", lambda t: ops.tied_gather(t(2), t.i(2), -2), Attr, r"tied_gather: axis .* got -2"),
    Refusal(
        "groups-axis",
        lambda t: ops.groupedgather(t(2, 3), t.i(2, 1), -2, 2),
        Attr,
        r"groupedgather: axis is the axis of the groups, got 0, expected 1 or more",
    ),
    Refusal(
        "groups-number",
        lambda t: ops.groupedgather(t(2, 3), t.i(3, 1), 1, 2),
        Shape,
        r"groupedgather: operand has another number of groups, got i32\[3, 1\], expected 2 on axis 0",
    ),
    Refusal(
        "groups-none",
        lambda t: ops.groupedgather(t(2, 3), t.i(3), 1, 0),
        Attr,
        r"groupedgather: group_size is not positive, got 0",
    ),
    Refusal(
        "scatter-shape",
        lambda t: ops.scatter(t(4, 3), t.i(2, 3), t(2, 2)),
        Shape,
        r"scatter: operands differ in shape, got i32\[2, 3\] and f32\[2, 2\]",
    ),
    Refusal(
        "scatter-beside",
        lambda t: ops.scatter(t(4, 3), t.i(2, 4), t(2, 4)),
        Shape,
        r"scatter: values do not fit, got f32\[2, 4\] into f32\[4, 3\], expected .* on axis 0",
    ),
    Refusal(
        "scatter-rank", lambda t: ops.scatter(t(4, 3), t.i(2), t(2)), Shape, r"scatter: values do not fit"
    ),
    Refusal(
        "scatter-dtype",
        lambda t: ops.scatter(t(4), t.i(2), t(2, kind=popsr.float16)),
        DType,
        r"scatter: .*f32\[4\] and f16\[2\], expected equal dtypes",
    ),
    Refusal(
        "reduction",
        lambda t: ops.scatter_reduce(t(4), t.i(4), "mean", axis_size=2),
        Attr,
        r"scatter_reduce: unknown reduction, got 'mean', expected one of 'sum', 'min', 'max', 'none'",
    ),
    Refusal(
        "reduce-size",
        lambda t: ops.scatter_reduce(t(4), t.i(4), "sum"),
        Attr,
        r"scatter_reduce: the size of the result is missing, got neither, expected initial_values or axis_size",
    ),
    Refusal(
        "reduce-negative",
        lambda t: ops.scatter_reduce(t(4), t.i(4), "sum", axis_size=-1),
        Attr,
        r"scatter_reduce: axis_size is negative, got -1",
    ),
    Refusal(
        "reduce-indices",
        lambda t: ops.scatter_reduce(t(4, 3), t.i(3), "sum", axis_size=2),
        Shape,
        r"scatter_reduce: indices do not match data, got i32\[3\] and f32\[4, 3\], expected what broadcasts",
    ),
    Refusal(
        "reduce-no-broadcast",
        lambda t: ops.scatter_reduce(t(4, 3), t.i(4), "sum", axis_size=2, enable_index_broadcast=False),
        Shape,
        r"scatter_reduce: indices do not match data, .*expected its shape",
    ),
    Refusal(
        "reduce-initial",
        lambda t: ops.scatter_reduce(t(4, 3), t.i(4), "sum", t(2, 4)),
        Shape,
        r"scatter_reduce: initial_values do not match, got f32\[2, 4\], .*with any extent on axis 0",
    ),
    Refusal(
        "reduce-initial-size",
        lambda t: ops.scatter_reduce(t(4, 3), t.i(4), "sum", t(2, 3), axis_size=3),
        Shape,
        r"scatter_reduce: initial_values do not match, got f32\[2, 3\], .*with 3 on axis 0",
    ),
    Refusal(
        "reduce-dtypes",
        lambda t: ops.scatter_reduce(t(4), t.i(4), "sum", t(2, kind=popsr.float16)),
        DType,
        r"scatter_reduce: .*f32\[4\] and f16\[2\]",
    ),
    Refusal(
        "reduce-type",
        lambda t: ops.scatter_reduce(t(4), t.i(4), "sum", 0.0),
        Argument,
        r"scatter_reduce: initial_values is not a Tensor, got 0.0",
    ),
    Refusal(
        "grouped-axis",
        lambda t: ops.grouped_scatter_reduce(t(2, 3), t.i(2, 3), "sum", axis_size=2, group_size=2),
        Attr,
        r"grouped_scatter_reduce: axis is the axis of the groups, got 0, expected 1 or more",
    ),
    Refusal(
        "grouped-number",
        lambda t: ops.grouped_scatter_reduce(t(2, 3), t.i(3), "sum", axis=1, axis_size=2, group_size=2),
        Shape,
        r"grouped_scatter_reduce: operand has another number of groups, got i32\[3\], expected 2 on axis 0",
    ),
    Refusal(
        "grouped-none",
        lambda t: ops.grouped_scatter_reduce(t(2, 3), t.i(2), "sum", axis=1, axis_size=2, group_size=0),
        Attr,
        r"grouped_scatter_reduce: group_size is not positive, got 0",
    ),
    Refusal(
        "grouped-indices",
        lambda t: ops.grouped_scatter_reduce(t(2, 3), t.i(2, 4), "sum", axis=1, axis_size=2, group_size=2),
        Shape,
        r"grouped_scatter_reduce: indices do not match data, got i32\[2, 4\] and f32\[2, 3\], expected what",
    ),
    Refusal(
        "grouped-reduction",
        lambda t: ops.grouped_scatter_reduce(t(4), t.i(4), "mean", axis_size=2),
        Attr,
        r"grouped_scatter_reduce: unknown reduction, got 'mean', expected one of 'sum', 'min', 'max', 'none'",
    ),
    Refusal(
        "grouped-type",
        lambda t: ops.grouped_scatter_reduce(t(4), t.i(4), "sum", 0.0),
        Argument,
        r"grouped_scatter_reduce: initial_values is not a Tensor, got 0.0",
    ),
    Refusal(
        "onehot-variable",
        lambda t: _onehot(t, num_classes=t.i()),
        Graph,
        r"onehot: num_classes is not constant, got '.*', expected a constant",
    ),
    Refusal(
        "onehot-none", lambda t: _onehot(t, num_classes=popsr.constant(0)), Attr, r"onehot: .*positive, got 0"
    ),
    Refusal(
        "onehot-several",
        lambda t: _onehot(t, num_classes=popsr.constant([1, 2])),
        Shape,
        r"onehot: .*i32\[2\], expected one element",
    ),
    Refusal(
        "onehot-values",
        lambda t: _onehot(t, values=t(3)),
        Shape,
        r"onehot: values are not off and on, got f32\[3\], expected shape \[2\]",
    ),
    Refusal("onehot-axis", lambda t: _onehot(t, axis=2), Attr, r"onehot: axis .* got 2"),
    Refusal(
        "onehot-floats", lambda t: _onehot(t, t=t(2)), DType, r"onehot: input t has the wrong dtype, got f32"
    ),
    Refusal(
        "levels",
        lambda t: ops.histogram(t(2), [1.0, 0.5], False),
        Attr,
        r"histogram: levels do not ascend, got \[1.0, 0.5\]",
    ),
    Refusal(
        "levels-nan",
        lambda t: ops.histogram(t(2), [float("nan")], False),
        Attr,
        r"histogram: levels do not ascend",
    ),
    Refusal(
        "levels-text",
        lambda t: ops.histogram(t(2), ["x"], False),
        Argument,
        r"histogram: an item of levels is not a number",
    ),
    Refusal(
        "levels-number",
        lambda t: ops.histogram(t(2), 1.0, False),
        Argument,
        r"histogram: levels is not a seq",
    ),
    Refusal(
        "histogram-int",
        lambda t: ops.histogram(t.i(2), [1.0], False),
        DType,
        r"histogram: input t has the wrong dtype, got i32",
    ),
    Refusal(
        "histogram-list",
        lambda t: ops.histogram([1.0], [1.0], False),
        Argument,
        r"histogram: t is not a Tensor",
    ),
    Refusal(
        "slice-lengths",
        lambda t: ops.dynamic_slice(t(4, 3), t.i(2), [0, 1], [2], True),
        Attr,
        r"dynamic_slice: axes and sizes differ in length, got \[0, 1\] and \[2\]",
    ),
    Refusal(
        "slice-index",
        lambda t: ops.dynamic_slice(t(4, 3), t.i(1), [0, 1], [2, 2], True),
        Shape,
        r"dynamic_slice: index does not match axes, got i32\[1\], expected 2 offsets",
    ),
    Refusal(
        "slice-size",
        lambda t: ops.dynamic_slice(t(4, 3), t.i(1), [1], [4], True),
        Shape,
        r"dynamic_slice: size is out of range, got 4 on axis 1 of \[4, 3\], expected 0 to 3",
    ),
    Refusal(
        "slice-twice",
        lambda t: ops.dynamic_slice(t(4, 3), t.i(2), [1, -1], [1, 1], True),
        Attr,
        r"dynamic_slice: axis given twice, got 1",
    ),
    Refusal(
        "slice-axis",
        lambda t: ops.dynamic_slice(t(4), t.i(1), [1], [1], True),
        Attr,
        r"dynamic_slice: axis .* got 1",
    ),
    Refusal(
        "update-shape",
        lambda t: ops.dynamic_update(t(4), t.i(1), t(3), [0], [2], True),
        Shape,
        r"dynamic_update: t_update does not match sizes, got f32\[3\], expected \[2\]",
    ),
    Refusal(
        "update-dtype",
        lambda t: ops.dynamic_update_(t(4), t.i(1), t.i(2), [0], [2], True),
        DType,
        r"dynamic_update_: .*f32\[4\] and i32\[2\]",
    ),
    Refusal(
        "update-constant",
        lambda t: ops.dynamic_update_(popsr.constant([1.0]), t.i(1), t(1), [0], [1], True),
        Graph,
        r"dynamic_update_: input t is modified but constant",
    ),
    Refusal(
        "strides", lambda t: ops.subsample(t(4), [1, 2]), Attr, r"subsample: too many strides, got \[1, 2\]"
    ),
    Refusal(
        "stride",
        lambda t: ops.subsample(t(4), 0),
        Attr,
        r"subsample: stride is not positive, got 0 on axis 0",
    ),
    Refusal("stride-type", lambda t: ops.subsample(t(4), 1.5), Argument, r"subsample: strides is not an int"),
]
