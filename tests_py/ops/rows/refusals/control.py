"""Calls of graphs, remote memory and moves between IPUs with arguments that they refuse."""

from __future__ import annotations

import popsr
from popsr import errors, ops
from tests_py.ops.rows.refusals.refusal import Operands, Refusal

Shape, DType, Attr = errors.ShapeError, errors.DTypeError, errors.AttributeValueError
Graph, Argument, Range = errors.GraphError, errors.ArgumentTypeError, errors.OutOfRangeError
F32 = popsr.float32


def _relu(t: Operands) -> popsr.Graph:
    return t.ir.create_graph(lambda x: ops.relu(x), popsr.TensorSpec((2,), F32))


def _sum(t: Operands) -> popsr.Graph:
    return t.ir.create_graph(lambda x: ops.sum(x), popsr.TensorSpec((2,), F32))


def _less(t: Operands) -> popsr.Graph:
    return t.ir.create_graph(lambda x: ops.less(ops.max(x), popsr.constant(9.0)), popsr.TensorSpec((2,), F32))


def _each_less(t: Operands) -> popsr.Graph:
    return t.ir.create_graph(lambda x: ops.less(x, popsr.constant(9.0)), popsr.TensorSpec((2,), F32))


def _bool(t: Operands, *shape: int) -> popsr.Tensor:
    return t(*shape, kind=popsr.bool)


def _buffer() -> popsr.RemoteBuffer:
    return popsr.remote_buffer((2,), F32, 3)


REFUSALS: list[Refusal] = [
    Refusal("no-graph", lambda t: ops.call(t(2)), Argument, r"call: graph is not a Graph, got Tensor"),
    Refusal("missing", lambda t: ops.call(_relu(t)), Graph, r"call: Not enough inputs .* got 0 of 1"),
    Refusal("many", lambda t: ops.call(_relu(t), t(2), t(2)), Graph, r"call: Too many inputs .* got 2"),
    Refusal("shape", lambda t: ops.call(_relu(t), t(3)), Shape, r"call: shape of input .* got f32\[3\]"),
    Refusal("dtype", lambda t: ops.call(_relu(t), t.i(2)), DType, r"call: dtype of input .* got i32\[2\]"),
    Refusal("count", lambda t: ops.repeat(_relu(t), -1, t(2)), Attr, r"repeat: Repeat count .* got -1"),
    Refusal(
        "text",
        lambda t: ops.repeat(_relu(t), "x", t(2)),
        Argument,
        r"repeat: repeat_count is not an int, got 'x'",
    ),
    Refusal("shape", lambda t: ops.repeat(_relu(t), 2, t(3)), Shape, r"repeat: shape of .* got f32\[3\]"),
    Refusal(
        "no-cond",
        lambda t: ops.while_loop(t(2), _relu(t), t(2)),
        Argument,
        r"while_loop: cond is not a Graph",
    ),
    Refusal(
        "no-body", lambda t: ops.while_loop(_less(t), 3, t(2)), Argument, r"while_loop: body is not a Graph"
    ),
    Refusal(
        "floats",
        lambda t: ops.while_loop(_sum(t), _relu(t), t(2)),
        DType,
        r"while_loop: the condition has the wrong dtype, got .*float32.*, expected bool",
    ),
    Refusal(
        "two-values",
        lambda t: ops.while_loop(_each_less(t), _relu(t), t(2)),
        Shape,
        r"while_loop: the condition is not one value",
    ),
    Refusal(
        "no-condition",
        lambda t: ops.while_loop(t.ir.create_graph(lambda: None), _relu(t), t(2)),
        Graph,
        r"while_loop: cond has not one output, got 0",
    ),
    Refusal(
        "carried",
        lambda t: ops.while_loop(_less(t), _sum(t), t(2)),
        Shape,
        r"while_loop: loop-carried shapes differ, got .*\(\).*, expected .*\(2,\)",
    ),
    Refusal(
        "carried-dtype",
        lambda t: ops.while_loop(_less(t), _each_less(t), t(2)),
        DType,
        r"while_loop: loop-carried dtypes differ, got .*bool.*, expected .*float32",
    ),
    Refusal(
        "outputs",
        lambda t: ops.while_loop(_less(t), t.ir.create_graph(lambda: popsr.ops.init((2,), F32)), t(2)),
        Graph,
        r"while_loop: body has fewer inputs than outputs, got 0 and 1",
    ),
    Refusal(
        "count",
        lambda t: ops.while_loop(_less(t), _relu(t), t(2), max_iterations=0),
        Attr,
        r"while_loop: max_iterations: got 0, expected an int from 1",
    ),
    Refusal("missing", lambda t: ops.while_loop(_less(t), _relu(t)), Graph, r"while_loop: Not enough inputs"),
    Refusal(
        "shape", lambda t: ops.while_loop(_less(t), _relu(t), t(3)), Shape, r"while_loop: shape of input"
    ),
    Refusal(
        "dtype", lambda t: ops.while_loop(_less(t), _relu(t), t.i(2)), DType, r"while_loop: dtype of input"
    ),
    Refusal(
        "floats",
        lambda t: ops.conditional(t(), _relu(t), _relu(t), [t(2)], [t(2)]),
        DType,
        r"conditional: input cond has the wrong dtype, got f32\[\]",
    ),
    Refusal(
        "two-values",
        lambda t: ops.conditional(_bool(t, 2), _relu(t), _relu(t), [t(2)], [t(2)]),
        Shape,
        r"conditional: cond is not one value, got bool\[2\]",
    ),
    Refusal(
        "missing",
        lambda t: ops.conditional(_bool(t), _relu(t), _relu(t), [t(2)]),
        Graph,
        r"conditional: Not enough inputs .* got 0 of 1",
    ),
    Refusal(
        "branches",
        lambda t: ops.conditional(_bool(t), _relu(t), _sum(t), [t(2)], [t(2)]),
        Shape,
        r"conditional: shapes of output 0 differ, got f32\[2\] .* and f32\[\]",
    ),
    Refusal("tensor", lambda t: ops.remote_load(t(2), 0), Argument, r"remote_load: not a RemoteBuffer"),
    *(
        Refusal(
            f"offset-{offset}",
            lambda t, offset=offset: ops.remote_load(_buffer(), offset),
            Range,
            rf"remote_load: offset is outside the buffer, got {offset}, expected 0 to 2 of remote buffer 1",
        )
        for offset in (3, -1)
    ),
    Refusal(
        "floats", lambda t: ops.remote_load(_buffer(), t()), DType, r"remote_load: input offset .* f32\[\]"
    ),
    Refusal(
        "two", lambda t: ops.remote_load(_buffer(), t.i(2)), Shape, r"remote_load: offset is not one number"
    ),
    Refusal(
        "constant",
        lambda t: ops.remote_load_(_buffer(), 0, popsr.constant([1.0, 2.0])),
        Graph,
        r"remote_load_: input t is modified but constant",
    ),
    Refusal(
        "offset", lambda t: ops.remote_load_(_buffer(), 5, t(2)), Range, r"remote_load_: offset .* got 5"
    ),
    Refusal(
        "offset", lambda t: ops.remote_store(_buffer(), 3, t(2)), Range, r"remote_store: offset .* got 3"
    ),
    Refusal(
        "nothing",
        lambda t: ops.remote_store(None, 0, t(2)),
        Argument,
        r"remote_store: not a RemoteBuffer, got None",
    ),
    Refusal(
        "negative", lambda t: ops.ipu_copy(t(2), -1), Attr, r"ipu_copy: destination .*got -1, expected 0 to"
    ),
    Refusal("source", lambda t: ops.ipu_copy(t(2), 1), Graph, r"ipu_copy: the IPU of the tensor is unknown"),
]
