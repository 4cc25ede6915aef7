"""A training step with a loop, a layer that is called twice, a branch, groups and stochastic rounding, and edits of it.

Each edit changes one thing. ``LINES`` has the lines of the ops that end in a mark, ``# at name``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import popsr
from popsr import ops

__all__ = ["LINES", "Step", "step"]

LINES = {
    line.rpartition("# at ")[2]: number
    for number, line in enumerate(Path(__file__).read_text().splitlines(), 1)
    if "# at " in line and not line.startswith(" ``")
}


class Step(NamedTuple):
    """The program and its stream."""

    ir: popsr.Ir
    stream: popsr.HostToDeviceStream


def _array(seed: int, *shape: int, bit: int = 0) -> np.ndarray[Any, Any]:
    value = np.random.default_rng(seed).normal(size=shape).astype(np.float32) / 4
    value.view(np.uint32).reshape(-1)[7] ^= bit
    return value


def step(**edit: Any) -> Step:
    """The program with an edit."""
    ir = popsr.Ir(replication=4)
    ir.options.enable_stochastic_rounding = not edit.get("nearest")
    pairs = ir.replica_grouping(stride=1, group_size=2)

    def layer(t: popsr.Tensor, v: popsr.Tensor) -> popsr.Tensor:
        t = ops.matmul(t, v)  # at layer matmul
        t = (ops.tanh if edit.get("layer tanh") else ops.relu)(t)  # at layer relu
        if not edit.get("layer unscaled"):
            t = t * popsr.constant(edit.get("layer scale", 0.75), popsr.float32)  # at layer scale
        return t

    def turn(t: popsr.Tensor) -> popsr.Tensor:
        t = ops.tanh(t)  # at turn tanh
        if edit.get("turn negate"):
            t = ops.negate(t)  # at turn negate
        return t + popsr.constant(edit.get("turn constant", 0.125), popsr.float32)  # at turn add

    with ir.main_graph, popsr.in_sequence():
        stream = popsr.h2d_stream((8, 16), popsr.float32, "x")
        w = popsr.variable(_array(1, 16, 16, bit=edit.get("bit of w", 0)), popsr.float32, "w")
        b = popsr.variable(_array(2, 16, bit=edit.get("bit of b", 0)), popsr.float32, "b")
        tables = np.stack([_array(3, 16), _array(4, 16, bit=edit.get("bit of a group", 0))])
        g = popsr.variable(tables, popsr.float32, "g", replica_grouping=pairs)
        h = popsr.variable(_array(5, 16, 16, bit=edit.get("bit of h", 0) << 16), popsr.bfloat16, "h")
        x = ops.host_load(stream)  # at load
        y = ops.matmul(w, x.T).T if edit.get("operands") else ops.matmul(x, w)  # at matmul
        y = y + (g if edit.get("other bias") else b)  # at bias
        if not edit.get("no gelu"):
            y = (ops.sigmoid if edit.get("sigmoid") else ops.gelu)(y)  # at gelu
        if edit.get("one more"):
            y = ops.negate(y)  # at negate
        y = ops.softmax(y, axis=0 if edit.get("softmax axis") else 1)  # at softmax
        y = ops.layer_norm(y, g, b, eps=edit.get("epsilon", 1e-5))  # at norm
        called = ir.create_graph(layer, y, w)
        (y,) = ops.call_with_info(called, y, w).outputs  # at first call
        if not edit.get("one call"):
            other = w.T if edit.get("other weight") else w  # at other weight
            (y,) = ops.call_with_info(called, y, other).outputs  # at second call
        looped = ir.create_graph(turn, y)
        (y,) = ops.repeat(looped, edit.get("turns", 3), y)  # at repeat
        z = ops.sub(x, y) if edit.get("swapped") else ops.sub(y, x)  # at sub
        if not edit.get("no clip"):
            z = ops.clip(z, min=-1.5, max=edit.get("greatest", 1.5))  # at clip
        if not edit.get("no rounding"):
            z = ops.cast(ops.cast(z, popsr.bfloat16), popsr.float32)  # at cast
        low = popsr.constant(edit.get("rows", np.array([0, 3, 1], np.int32)))
        rows = ops.gather(z, low, axis=0)  # at gather
        first = rows[edit.get("row", 0)]  # at slice
        s, t, u = first, rows[1], rows[2]  # at rows
        total = s + (t + u) if edit.get("order") else (s + t) + u  # at sum
        total = ops.sum(total * total, axis=0) if edit.get("square") else ops.sum(total, axis=0)  # at total
        flag = ops.greater(total, popsr.constant(edit.get("limit", 1e6), popsr.float32))  # at flag
        z = ops.where(flag, z * popsr.constant(2.0, popsr.float32), z)  # at where
        dw = ops.matmul(x.T, z)  # at gradient
        if not edit.get("no reduction"):
            op = edit.get("reduction", "mean")
            group = ir.replica_grouping(group_size=edit.get("group", 4))
            dw = ops.collectives.replicated_all_reduce(dw, op, group=group)  # at reduction
        narrow = ops.cast(dw, popsr.bfloat16)
        if not edit.get("h stays"):
            ops.scaled_add_(h, narrow, b=edit.get("h rate", -0.5))  # at h update
        if edit.get("copied"):
            ops.var_updates.copy_var_update_(w, w - dw * popsr.constant(0.25, popsr.float32))  # at copied
        else:
            ops.scaled_add_(w, dw, b=edit.get("w rate", -0.25))  # at w update
        if edit.get("twice"):
            ops.scaled_add_(w, dw, b=-0.25)  # at twice
    return Step(ir, stream)
