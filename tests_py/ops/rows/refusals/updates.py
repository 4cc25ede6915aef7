"""Updates of variables with tensors, numbers or attributes that they refuse."""

from __future__ import annotations

import popsr
from popsr import errors
from popsr.ops import var_updates
from tests_py.ops.rows.refusals.refusal import Refusal

F16, BF16, F32, F64, I32 = popsr.float16, popsr.bfloat16, popsr.float32, popsr.float64, popsr.int32
Shape, DType, Attr = errors.ShapeError, errors.DTypeError, errors.AttributeValueError
Graph, Replica, Argument = errors.GraphError, errors.ReplicaError, errors.ArgumentTypeError


REFUSALS: list[Refusal] = [
    Refusal(
        "update",
        lambda t: var_updates.accumulate_(t(2), t(1)),
        Shape,
        r"accumulate_: .*f32\[2\] and f32\[1\], expected equal",
    ),
    Refusal(
        "update-factor",
        lambda t: var_updates.accumulate_(t(2), t(2), t(2)),
        Shape,
        r"accumulate_: f is not a scalar, got f32\[2\], expected one element",
    ),
    Refusal(
        "no-step",
        lambda t: var_updates.accumulate_mean_(t(2), t(2), None),
        Attr,
        r"accumulate_mean_: step is missing",
    ),
    Refusal(
        "copy",
        lambda t: var_updates.copy_var_update_(t(2), t(2, 1)),
        Shape,
        r"copy_var_update_: .*f32\[2\] and f32\[2, 1\]",
    ),
    Refusal(
        "decay without weight",
        lambda t: var_updates.adam_updater(t(3), t(3), weight_decay=0.1),
        Attr,
        r"adam_updater: weight is missing, got weight_decay 0\.1, expected the weight that decays$",
    ),
    Refusal(
        "tensor decay without weight",
        lambda t: var_updates.lamb_updater(t(3), t(3), weight_decay=t(1)),
        Attr,
        r"lamb_updater: weight is missing, got weight_decay Tensor",
    ),
    Refusal(
        "adamax decay without weight",
        lambda t: var_updates.adamax_updater(t(3), t(3), None, t(), 0.1),
        Attr,
        r"adamax_updater: weight is missing",
    ),
    Refusal(
        "step without beta1",
        lambda t: var_updates.adam_updater(t(3), t(3), None, t(), beta2=0.9),
        Attr,
        r"adam_updater: beta1 is missing, got neither a number nor a tensor, expected one of them$",
    ),
    Refusal(
        "step without beta2",
        lambda t: var_updates.lamb_updater(t(3), t(3), None, t(), beta1=0.9),
        Attr,
        r"lamb_updater: beta2 is missing",
    ),
    Refusal(
        "adamax without step",
        lambda t: var_updates.adamax_updater(t(3), t(3)),
        Attr,
        r"adamax_updater: time_step is missing, got none, expected a tensor$",
    ),
    Refusal(
        "adamax without beta",
        lambda t: var_updates.adamax_updater(t(3), t(3), None, t(), beta1=None),
        Attr,
        r"adamax_updater: beta1 is missing",
    ),
    Refusal(
        "no epsilon",
        lambda t: var_updates.adam_updater(t(3), t(3), epsilon=None),
        Attr,
        r"adam_updater: epsilon is missing",
    ),
    Refusal(
        "step of two",
        lambda t: var_updates.adam_updater(t(3), t(3), None, t(2), None, 0.9, 0.9),
        Shape,
        r"adam_updater: time_step is not a scalar, got f32\[2\], expected one element$",
    ),
    Refusal(
        "narrow step",
        lambda t: var_updates.adam_updater(t(3), t(3), None, t(kind=BF16), None, 0.9, 0.9),
        DType,
        r"adam_updater: input time_step has the wrong dtype, got bf16\[\]",
    ),
    Refusal(
        "beta of two",
        lambda t: var_updates.adam_updater(t(3), t(3), None, t(), None, t(2), 0.9),
        Shape,
        r"adam_updater: beta1 is not a scalar, got f32\[2\]",
    ),
    Refusal(
        "epsilon of two",
        lambda t: var_updates.adam_updater(t(3), t(3), epsilon=t(2)),
        Shape,
        r"adam_updater: epsilon is not a scalar",
    ),
    Refusal(
        "epsilon of letters",
        lambda t: var_updates.adam_updater(t(3), t(3), epsilon="x"),
        errors.Error,
        r"adam_updater: .*epsilon",
    ),
    Refusal(
        "moments of different shapes",
        lambda t: var_updates.adam_updater(t(3), t(2)),
        Shape,
        r"adam_updater: operands differ in shape, got f32\[3\] and f32\[2\]",
    ),
    Refusal(
        "weight of another shape",
        lambda t: var_updates.adam_updater(t(3), t(3), t(2), weight_decay=0.1),
        Shape,
        r"adam_updater: operands differ in shape, got f32\[3\] and f32\[2\]",
    ),
    Refusal(
        "a number as weight",
        lambda t: var_updates.adam_updater(t(3), t(3), 1.0),
        Argument,
        r"adam_updater: weight is not a Tensor, got float 1\.0, expected a Tensor$",
    ),
    Refusal(
        "a constant step",
        lambda t: var_updates.adam_updater(t(3), t(3), None, popsr.constant(0.0), None, 0.9, 0.9),
        errors.GraphError,
        r"adam_updater: input time_step is modified but constant",
    ),
    Refusal(
        "mode",
        lambda t: var_updates.create_adamupdater(t(3), t(3), {}, "sgd"),
        Attr,
        r"create_adamupdater: unknown mode, got 'sgd'",
    ),
    Refusal(
        "no rate",
        lambda t: var_updates.adam_var_update(t(3), t(3), t(1), t(1)),
        Attr,
        r"adam_var_update: learning_rate is missing, got neither a number nor a tensor, expected one of them$",
    ),
    Refusal(
        "norm of two",
        lambda t: var_updates.adam_var_update(t(3), t(3), t(1), t(2), 0.1),
        Shape,
        r"adam_var_update: r2 is not a scalar, got f32\[2\], expected one element$",
    ),
    Refusal(
        "bound of two",
        lambda t: var_updates.adam_var_update(t(3), t(3), t(1), t(1), 0.1, t(2)),
        Shape,
        r"adam_var_update: max_weight_norm is not a scalar",
    ),
    Refusal(
        "step of another shape",
        lambda t: var_updates.adam_var_update(t(3), t(2), t(1), t(1), 0.1),
        Shape,
        r"adam_var_update: operands differ in shape",
    ),
    Refusal(
        "integers",
        lambda t: var_updates.adam_var_update(t.i(3), t(3), t(1), t(1), 0.1),
        DType,
        r"adam_var_update: input t has the wrong dtype, got i32\[3\]",
    ),
    Refusal(
        "squares of another shape",
        lambda t: var_updates.accumulate_square_(t(3), t(2)),
        Shape,
        r"accumulate_square_: operands differ in shape",
    ),
    Refusal(
        "no factor",
        lambda t: var_updates.accumulate_moving_average_(t(3), t(3), None),
        Attr,
        r"accumulate_moving_average_: f is missing",
    ),
    Refusal(
        "factor of two",
        lambda t: var_updates.accumulate_moving_average_square_(t(3), t(3), t(2)),
        Shape,
        r"accumulate_moving_average_square_: f is not a scalar",
    ),
    Refusal(
        "average of integers",
        lambda t: var_updates.accumulate_moving_average_(t.i(3), t(3), 0.5),
        DType,
        r"accumulate_moving_average_: input t has the wrong dtype, got i32\[3\]",
    ),
    Refusal(
        "sparse shape",
        lambda t: var_updates.sparse_accumulate_(t(3), t(3), t.i(2)),
        Shape,
        r"sparse_accumulate_: X does not match, got f32\[3\] and indices i32\[2\] for f32\[3\], "
        r"expected a shape of \[2\]$",
    ),
    Refusal(
        "sparse axis",
        lambda t: var_updates.sparse_accumulate_(t(3), t(2), t.i(2), 1),
        Attr,
        r"sparse_accumulate_: axis .*got 1",
    ),
    Refusal(
        "sparse scalar",
        lambda t: var_updates.sparse_accumulate_(t(), t(2), t.i(2)),
        Attr,
        r"sparse_accumulate_: axis",
    ),
    Refusal(
        "sparse indices",
        lambda t: var_updates.sparse_accumulate_(t(3), t(2), t(2)),
        DType,
        r"sparse_accumulate_: input indices has the wrong dtype, got f32\[2\]",
    ),
    Refusal(
        "sparse factor",
        lambda t: var_updates.sparse_accumulate_(t(3), t(2), t.i(2), f=t(2)),
        Shape,
        r"sparse_accumulate_: f is not a scalar",
    ),
    Refusal(
        "sparse weight",
        lambda t: var_updates.sparse_accumulate_(t(3), t(2), t.i(2), W=1),
        Argument,
        r"sparse_accumulate_: W is not a Tensor, got int 1",
    ),
]
