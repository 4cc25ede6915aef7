"""Steps that are written by hand with a ``StepBuilder``, as importers would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

import popsr
from popsr import ops
from popsr.bridge import BridgedStep, StepBuilder

__all__ = ["F32", "ROWS", "momentum", "tensor_parallel"]

F32 = popsr.float32
ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)
Reduce = Callable[[popsr.Tensor], popsr.Tensor]


def mean_of_all(t: popsr.Tensor) -> popsr.Tensor:
    return ops.collectives.replicated_all_reduce(t, "mean")


def momentum(reduce: Reduce = mean_of_all, loss_reduce: Reduce = mean_of_all) -> BridgedStep:
    """Data parallelism on 4 replicas: a weight, its momentum, and a loss that is returned."""
    b = StepBuilder(4, where="momentum")
    with b:
        with popsr.location("model.py", 1):
            w = b.state("params['w']", np.ones(3, np.float32), b.all())
            m = b.state("opt['m']", np.zeros(3, np.float32), b.all())
        with popsr.location("model.py", 2):
            x = b.data("batch", (3,), F32, b.each(), example=ROWS)
        with popsr.location("model.py", 3):
            loss = loss_reduce(ops.sum(w * x * w * x))
        with popsr.location("model.py", 4):
            g = reduce(w * x * x * 2.0)
        with popsr.location("model.py", 5):
            new_m = m * 0.5 + g
        with popsr.location("model.py", 6):
            new_w = w - new_m * 0.125
        b.update("opt['m']", new_m)
        b.update("params['w']", new_w)
        b.result("loss", loss, grouping=b.all())
        return b.finish()


def tensor_parallel(
    data: Literal["model", "all", "forgotten"] = "model", *, fork: bool = True
) -> BridgedStep:
    """Two data groups of two model-parallel replicas: ``h = x @ w1`` by columns, ``y = h @ w2`` by rows, a bias."""
    b = StepBuilder(4, where="tensor_parallel")
    with b:
        across, within = b.groups([0, 1, 0, 1]), b.groups([0, 0, 1, 1])
        rng = np.random.default_rng(0)
        w1 = b.state("w1", rng.normal(size=(2, 3, 2)).astype(np.float32), across)
        w2 = b.state("w2", rng.normal(size=(2, 2, 3)).astype(np.float32), across)
        bias = b.state("bias", np.zeros(3, np.float32), b.all())
        x = b.data("x", (2, 3), F32, within, example=rng.normal(size=(2, 2, 3)).astype(np.float32))
        h = x @ w1
        part = h @ w2
        with popsr.location("model.py", 20):
            y = ops.collectives.replicated_all_reduce(part, "add", within) if fork else part
        out = y + bias
        groups = {"model": across, "all": None, "forgotten": None}[data]

        def average(t: popsr.Tensor) -> popsr.Tensor:
            return t if data == "forgotten" else ops.collectives.replicated_all_reduce(t, "mean", groups)

        with popsr.location("model.py", 30):
            b.update("w1", w1 - average(ops.transpose(x) @ (out @ ops.transpose(w2))) * 0.1)
            b.update("w2", w2 - average(ops.transpose(h) @ out) * 0.1)
            b.update("bias", bias - average(ops.sum(out, [0])) * 0.1)
        return b.finish()
