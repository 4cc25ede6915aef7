"""Programs whose reports are tested."""

from __future__ import annotations

from typing import Any

import numpy as np

import popsr
from popsr import ops
from popsr.ops import collectives

HOSTILE = "</script><b>\"'&é→x"
"""A name that would end a script, be an element, or an attribute, if it were not escaped."""


def layers(count: int, replicas: int = 8, drifting: bool = False) -> popsr.Ir:
    """Residual layers in scopes of eight, eight ops each, whose biases are updated with a mean, or drift."""
    ir = popsr.Ir(replication=replicas)
    with ir.main_graph, popsr.in_sequence():
        x = ops.host_load(popsr.h2d_stream((64, 32), popsr.float32, "x"))
        for i in range(count):
            block, layer = divmod(i, 8)
            with popsr.name_scope(f"block{block}"), popsr.name_scope(f"layer{layer}"):
                name = f"block{block}.layer{layer}"
                weight = popsr.variable(np.full((32, 32), 0.01, np.float32), name=f"{name}.weight")
                bias = popsr.variable(np.zeros(32, np.float32), name=f"{name}.bias")
                h = ops.gelu(x @ weight + bias)
                x = x + h
                mean = ops.sum(h, [0])
                if not drifting or i != count // 2:
                    mean = collectives.replicated_all_reduce(mean, "mean")
                ops.scaled_add_(bias, mean, b=-0.1)
        ops.host_store(popsr.d2h_stream(x.shape, x.dtype, "out"), x)
    return ir


def run(session: popsr.Session, values: float = 1) -> None:
    """One run with the same data everywhere."""
    with session:
        replicas = session.ir.replication_factor
        data: Any = {s: np.full((replicas, *s.shape), values, np.float32) for s in session.expected_inputs()}
        session.run(data)


def chain(sizes: list[int], replicas: int = 2) -> popsr.Ir:
    """Concatenations of growing sizes, each of the one before and a constant."""
    ir = popsr.Ir(replication=replicas)
    with ir.main_graph, popsr.in_sequence():
        x = ops.host_load(popsr.h2d_stream((4,), popsr.float32, "x"))
        kept = x
        for size in sizes:
            x = ops.concat([x, popsr.constant(np.ones(size, np.float32))])
        total = ops.sum(x, [0]) + ops.sum(kept, [0])
        ops.host_store(popsr.d2h_stream(total.shape, total.dtype, "out"), total)
    return ir


def hostile() -> popsr.Ir:
    """A drifting variable, scopes and streams with names that are HTML."""
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence(), popsr.name_scope(HOSTILE):
        weight = popsr.variable(np.zeros(400, np.float32), name=HOSTILE)
        x = ops.host_load(popsr.h2d_stream((400,), popsr.float32, f"x{HOSTILE}"))
        ops.scaled_add_(weight, x, b=0.5)
    return ir
