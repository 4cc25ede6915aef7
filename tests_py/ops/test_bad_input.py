"""Ops with wrong operands or attributes are refused with the right error; nothing is appended to the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import popsr
from popsr import errors, ops
from popsr.ops import collectives, var_updates

F16, F32, BF16 = popsr.float16, popsr.float32, popsr.bfloat16
Shape, DType, Attr, Graph = (
    errors.ShapeError,
    errors.DTypeError,
    errors.AttributeValueError,
    errors.GraphError,
)
Replica, Argument = errors.ReplicaError, errors.ArgumentTypeError


class Operands:
    """Tensors of a graph of 4 replicas by shape: ``t(2, 3)``."""

    def __init__(self, ir: popsr.Ir) -> None:
        self.ir = ir
        self.grouping = popsr.Ir(replication=2).replica_grouping()

    def __call__(self, *shape: int, kind: Any = F32, meta: tuple[int, ...] | None = None) -> popsr.Tensor:
        return popsr.graph_input(shape, kind, meta_shape=meta)


Bad = tuple[str, Callable[[Operands], Any], type[Exception], str]

OPS: list[Bad] = [
    # Elementwise
    (
        "broadcast",
        lambda t: ops.add(t(2, 3), t(2, 4)),
        Shape,
        r"add: shapes do not broadcast, got \[2, 3\] and \[2, 4\], expected equal or 1",
    ),
    (
        "dtypes",
        lambda t: ops.mul(t(2), t(2, kind=BF16)),
        DType,
        r"mul: .*f32\[2\] and bf16\[2\], expected equal dtypes",
    ),
    (
        "loss-scale",
        lambda t: ops.mul(t(2, kind=F16), t(2)),
        DType,
        r"mul: .*f16\[2\] and f32\[2\], expected equal",
    ),
    ("inplace-grows", lambda t: ops.add_(t(3), t(2, 3)), Shape, r"add_: .*expected a result of \[3\]"),
    (
        "constant",
        lambda t: ops.relu_(popsr.constant([1.0])),
        Graph,
        r"relu_: input t is modified but constant, got '.*t'",
    ),
    (
        "maximum",
        lambda t: ops.maximum(t(2, 3), t(3), t(2)),
        Shape,
        r"maximum: .*\[2, 3\] and \[2\]",
    ),
    ("scaled", lambda t: ops.scaled_add(t(2), t(3)), Shape, r"scaled_add: .*f32\[2\] and f32\[3\]"),
    (
        "factor",
        lambda t: ops.scaled_add(t(2), t(2), a=t(2)),
        Shape,
        r"scaled_add: factor is not a scalar, got f32\[2\]",
    ),
    ("text", lambda t: ops.scaled_add(t(2), t(2), a="x"), errors.Error, r"scaled_add: a .*'x'"),
    ("meta", lambda t: ops.add(t(3, meta=(5,)), t(3, meta=(6,))), Shape, r"add: .*got \[5\] and \[6\]"),
    # Shapes
    (
        "permutation-length",
        lambda t: ops.transpose(t(2, 3), (0,)),
        Attr,
        r"transpose: .*\[0\], expected 2 axes",
    ),
    ("permutation-range", lambda t: ops.transpose(t(2, 3), (0, 2)), Attr, r"transpose: axis .* got 2"),
    (
        "permutation-twice",
        lambda t: ops.transpose(t(2, 3), (0, 0)),
        Attr,
        r"transpose: axis given twice, got 0",
    ),
    (
        "count",
        lambda t: ops.reshape(t(2, 3), (4,)),
        Shape,
        r"reshape: .*f32\[2, 3\] to \[4\], expected 6 elements",
    ),
    (
        "inferred-count",
        lambda t: ops.reshape(t(2, 3), (4, -1)),
        Shape,
        r"reshape: .*f32\[2, 3\] to \[4, -1\]",
    ),
    (
        "two-inferred",
        lambda t: ops.reshape(t(4), (-1, -1)),
        Attr,
        r"reshape: more than one extent .*\[-1, -1\]",
    ),
    ("zero-extent", lambda t: ops.reshape(t(4), (0, 4)), Attr, r"reshape: .*not positive, got \[0, 4\]"),
    ("low-extent", lambda t: ops.reshape(t(4), (-2, 2)), Attr, r"reshape: .*not positive, got \[-2, 2\]"),
    (
        "squeeze-size",
        lambda t: ops.squeeze(t(2, 1), [0]),
        Shape,
        r"squeeze: axis 0 .*f32\[2, 1\], expected extent 1",
    ),
    ("squeeze-twice", lambda t: ops.squeeze(t(1, 1), [0, -2]), Attr, r"squeeze: axis given twice, got 0"),
    ("squeeze-range", lambda t: ops.squeeze(t(1), [1]), Attr, r"squeeze: axis .* got 1"),
    ("slice-lengths", lambda t: ops.slice(t(4, 4), [0, 1], [2]), Attr, r"slice: .*differ in length"),
    (
        "slice-step",
        lambda t: ops.slice(t(4), 0, 4, 0),
        Attr,
        r"slice: step must not be 0, got 0, expected another int",
    ),
    (
        "slice-inverted",
        lambda t: ops.slice(t(4), 3, 1),
        Shape,
        r"slice: range is inverted, got 3 to 1 of extent 4",
    ),
    ("slice-axis", lambda t: ops.slice(t(4), 0, 1, axis=1), Attr, r"slice: axis .* got 1"),
    ("slice-type", lambda t: ops.slice(t(4), "a"), Argument, r"slice: bound is not an int.*'a'"),
    ("cast", lambda t: ops.cast(t(2), "float31"), errors.Error, r"cast: .*float31"),
    # Reductions, products, losses
    ("axis", lambda t: ops.sum(t(2, 3), axis=2), Attr, r"sum: axis .* got 2"),
    ("low-axis", lambda t: ops.mean(t(2, 3), axis=[0, -3]), Attr, r"mean: axis .* got -3"),
    ("axis-twice", lambda t: ops.max(t(2, 3), axis=[1, -1]), Attr, r"max: axis given twice, got 1"),
    ("axis-type", lambda t: ops.sum(t(2, 3), axis="x"), errors.Error, r"sum: .*axis.*'x'"),
    (
        "max-of-none",
        lambda t: ops.max(t(0, 3), axis=0),
        Shape,
        r"max: there is no largest of no elements, got f32\[0, 3\]",
    ),
    ("softmax", lambda t: ops.softmax(t(2, 3), 2), Attr, r"softmax: axis .* got 2"),
    (
        "inner",
        lambda t: ops.matmul(t(2, 3), t(2, 3)),
        Shape,
        r"matmul: inner dimensions differ, got f32\[2, 3\] @ f32\[2, 3\]",
    ),
    (
        "batch",
        lambda t: ops.matmul(t(2, 4, 3), t(5, 3, 2)),
        Shape,
        r"matmul: shapes do not broadcast, got \[2\] and \[5\]",
    ),
    (
        "scalar",
        lambda t: ops.matmul(t(), t(3)),
        Shape,
        r"matmul: operand is a scalar, got f32\[\] @ f32\[3\]",
    ),
    (
        "partials",
        lambda t: ops.matmul(t(2, 3), t(3, 2), partials_type=popsr.int8),
        errors.Error,
        r"matmul: .*partials_type",
    ),
    (
        "output",
        lambda t: ops.matmul(t(2, 3), t(3, 2), output_type=popsr.int8),
        DType,
        r"matmul: output_type .*int8",
    ),
    (
        "labels",
        lambda t: ops.nll_loss(t(2, 3), t(3, kind=popsr.int32)),
        Shape,
        r"nll_loss: labels do not match, .*i32\[3\]",
    ),
    (
        "reduction",
        lambda t: ops.nll_loss(t(2, 3), t(2, kind=popsr.int32), reduction="max"),
        Attr,
        r"nll_loss: unknown reduction, got 'max', expected one of 'mean', 'sum', 'none'",
    ),
    (
        "loss-grad",
        lambda t: ops.nll_loss_with_softmax_grad(t(2, 3), t(2, kind=popsr.int32), t(2)),
        Shape,
        r"nll_loss_with_softmax_grad: loss_grad does not match the loss, got f32\[2\], expected one element",
    ),
    # Host
    (
        "init-type",
        lambda t: ops.init((2,), F32, init_type="one"),
        Attr,
        r"init: unknown init_type, got 'one', expected one of 'zero', 'undef'",
    ),
    ("init-shape", lambda t: ops.init((-1,), F32), Shape, r"init: negative extent"),
    (
        "print-format",
        lambda t: ops.print_tensor(t(2), float_format="hex"),
        errors.Error,
        r"print_tensor: .*float_format.*'hex'",
    ),
    (
        "print-open",
        lambda t: ops.print_tensor(t(2), open_bracket="<<"),
        Attr,
        r"print_tensor: open_bracket .*'<<'",
    ),
    (
        "load",
        lambda t: ops.host_load(popsr.d2h_stream((2,), F32)),
        Argument,
        r"host_load: not a HostToDeviceStream",
    ),
    (
        "store-shape",
        lambda t: ops.host_store(popsr.d2h_stream((2,), F32), t(3)),
        Shape,
        r"host_store: .*f32\[3\].*f32\[2\]",
    ),
    (
        "store-dtype",
        lambda t: ops.host_store(popsr.d2h_stream((2,), F32), t(2, kind=F16)),
        DType,
        r"host_store: .*f16\[2\]",
    ),
    # Collectives
    (
        "unknown-op",
        lambda t: collectives.replicated_all_reduce(t(2), "local"),
        Attr,
        r"replicated_all_reduce: unknown op, got 'local', expected one of 'add', 'mean'",
    ),
    (
        "and",
        lambda t: collectives.replicated_all_reduce(t(2), "and"),
        DType,
        r"all_reduce: 'and' of floats, got f32\[2\]",
    ),
    (
        "bool",
        lambda t: collectives.replicated_all_reduce(t(2, kind=popsr.bool)),
        DType,
        r"all_reduce: 'add' of bool",
    ),
    (
        "group",
        lambda t: collectives.replicated_all_reduce(t(2), "add", t.grouping),
        Replica,
        r"replicated_all_reduce: group is of other replicas, got 2 replicas, expected 4",
    ),
    (
        "group-type",
        lambda t: collectives.replicated_all_gather(t(2), 0, 2),
        errors.Error,
        r"replicated_all_gather: group .*got 2",
    ),
    (
        "gather-axis",
        lambda t: collectives.replicated_all_gather(t(2), 1),
        Attr,
        r"replicated_all_gather: axis .* got 1",
    ),
    (
        "gather-mode",
        lambda t: collectives.replicated_all_gather(t(2), output_shape="stack"),
        Attr,
        r"replicated_all_gather: unknown output_shape, got 'stack', expected one of 'auto'",
    ),
    (
        "gather-meta",
        lambda t: collectives.replicated_all_gather(t(2), output_shape="meta_shape"),
        Shape,
        r"replicated_all_gather: input is not a shard of its meta shape",
    ),
    # Variables
    (
        "update",
        lambda t: var_updates.accumulate_(t(2), t(1)),
        Shape,
        r"accumulate_: .*f32\[2\] and f32\[1\], expected equal",
    ),
    (
        "update-factor",
        lambda t: var_updates.accumulate_(t(2), t(2), t(2)),
        Shape,
        r"accumulate_: f is not a scalar, got f32\[2\], expected one element",
    ),
    (
        "no-step",
        lambda t: var_updates.accumulate_mean_(t(2), t(2), None),
        Attr,
        r"accumulate_mean_: step is missing",
    ),
    (
        "copy",
        lambda t: var_updates.copy_var_update_(t(2), t(2, 1)),
        Shape,
        r"copy_var_update_: .*f32\[2\] and f32\[2, 1\]",
    ),
]


@pytest.mark.parametrize(("build", "error", "match"), [pytest.param(*bad[1:], id=bad[0]) for bad in OPS])
def test_ops(build: Callable[[Operands], Any], error: type[Exception], match: str) -> None:
    ir = popsr.Ir(replication=4)
    with ir.create_empty_graph() as graph:
        with pytest.raises(error, match=match) as caught:
            build(Operands(ir))
        assert isinstance(caught.value, errors.Error)
        assert "\n" not in str(caught.value)
        assert not str(caught.value).endswith(".")
        assert not graph.ops, "nothing was appended"
        ops.init((2,), F32)


def test_errors_note_where() -> None:
    with popsr.Ir().main_graph:
        a, b = popsr.constant([1.0]), popsr.constant([1])
        with pytest.raises(errors.DTypeError) as caught:
            ops.add(a, b)
    (note,) = caught.value.__notes__
    assert "while emitting add(lhs=<float32[1] 't'>" in note
    assert "test_bad_input.py:" in note
