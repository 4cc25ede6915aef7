"""Four replicas with a condition each, for tests of branches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import popsr
from popsr import TensorByRef, ops
from tests_py.support.helpers import Array, Streams

F32, BF16, BOOL = popsr.float32, popsr.bfloat16, popsr.bool
MODES: list[dict[str, Any]] = [{}, {"dedup": False}, {"check": True}, {"num_threads": 2}, {"optimise": False}]
TAKEN = np.array([True, False, False, True])  # of four replicas
ONE = np.ones(2, np.float32)


class Machine:
    """Four replicas with a condition of their own, and a variable that shows every replica's value."""

    def __init__(self, taken: Array = TAKEN, transfers: int = 1) -> None:
        self.ir, self.io = popsr.Ir(replication=4), Streams()
        self.ir.num_host_transfers = transfers
        self.pairs, self.strided = self.ir.replica_grouping(1, 2), self.ir.replica_grouping(2, 2)
        with self.ir.main_graph:
            self.taken = self.feed(taken)
            self.x = self.feed(np.arange(8, dtype=np.float32).reshape(4, 2))
            self.v = popsr.variable(np.zeros(2), F32, "v", retrieval_mode="all_replicas")

    def feed(self, data: Array) -> popsr.Tensor:
        """A tensor with a row a replica, in every transfer the same."""
        transfers = self.ir.num_host_transfers
        rows = np.broadcast_to(data, (transfers, *data.shape)) if transfers > 1 else data
        return self.io.feed(np.ascontiguousarray(rows), replicated=True, transfers=transfers > 1)

    def graph(self, fn: Callable[..., Any], *tensors: popsr.Tensor) -> popsr.Graph:
        return self.ir.create_graph(fn, *tensors)

    def nothing(self) -> popsr.Graph:
        return self.ir.create_empty_graph("nothing")

    def run(self, mode: dict[str, Any]) -> tuple[list[Array], Array]:
        """Fetched values, and the variable's value of each replica."""
        with popsr.Session(self.ir, **mode) as session:
            return self.io.run(session), session.get_tensor_data(self.v)


def add_ref(total: TensorByRef, x: popsr.Tensor) -> None:
    ops.add_(total, x)


def add_value(total: popsr.Tensor, x: popsr.Tensor) -> popsr.Tensor:
    return ops.add_(total, x)


def negate(x: popsr.Tensor) -> popsr.Tensor:
    return ops.negate(x)


def double(x: popsr.Tensor) -> popsr.Tensor:
    return ops.add(x, x)
