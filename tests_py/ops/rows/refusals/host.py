"""Streams, prints and new tensors with arguments that they refuse."""

from __future__ import annotations

import popsr
from popsr import errors, ops
from tests_py.ops.rows.refusals.refusal import Refusal

F16, BF16, F32, F64, I32 = popsr.float16, popsr.bfloat16, popsr.float32, popsr.float64, popsr.int32
Shape, DType, Attr = errors.ShapeError, errors.DTypeError, errors.AttributeValueError
Graph, Replica, Argument = errors.GraphError, errors.ReplicaError, errors.ArgumentTypeError


REFUSALS: list[Refusal] = [
    Refusal(
        "init-type",
        lambda t: ops.init((2,), F32, init_type="one"),
        Attr,
        r"init: unknown init_type, got 'one', expected one of 'zero', 'undef'",
    ),
    Refusal("init-shape", lambda t: ops.init((-1,), F32), Shape, r"init: negative extent"),
    Refusal(
        "print-format",
        lambda t: ops.print_tensor(t(2), float_format="hex"),
        errors.Error,
        r"print_tensor: .*float_format.*'hex'",
    ),
    Refusal(
        "print-open",
        lambda t: ops.print_tensor(t(2), open_bracket="<<"),
        Attr,
        r"print_tensor: open_bracket .*'<<'",
    ),
    Refusal(
        "load",
        lambda t: ops.host_load(popsr.d2h_stream((2,), F32)),
        Argument,
        r"host_load: not a HostToDeviceStream",
    ),
    Refusal(
        "store-shape",
        lambda t: ops.host_store(popsr.d2h_stream((2,), F32), t(3)),
        Shape,
        r"host_store: .*f32\[3\].*f32\[2\]",
    ),
    Refusal(
        "store-dtype",
        lambda t: ops.host_store(popsr.d2h_stream((2,), F32), t(2, kind=F16)),
        DType,
        r"host_store: .*f16\[2\]",
    ),
]
