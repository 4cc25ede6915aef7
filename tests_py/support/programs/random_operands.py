"""Operands of random programs: axes, values, streams and variables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import popsr
from popsr import ops
from popsr._program.op import Op
from tests_py.support.helpers import FLOAT8, FLOATS, Array, Streams, make_variable, np_dtype, random_array
from tests_py.support.programs import Rounding

ROUNDING = ("off", "partition", "identical", "popart")
DTYPES = ("float32", "bfloat16", "float16", "bfloat16", "float32", "float64", "int32", "int8", "float8_143")
SHAPES = ((4, 4), (4,), (3, 3), (), (1,), (0,), (7,), (2, 1, 3), (5, 0), (33,), (4, 4), (1100,))
TRANSFERS = 12  # of programs that load and store in loops


@dataclass(frozen=True)
class Axes:
    """Properties of a whole program."""

    replicas: int = 4
    name: str = "float32"  # dtype of most values
    shape: tuple[int, ...] = (4, 4)
    rounding: Rounding = "off"
    by_hand: bool = False  # the transform is run instead of setting the option alone
    stores: float = 0.3  # share of values that are stored where they are made
    merges: bool = False


def random_axes(rng: np.random.Generator) -> Axes:
    """Half of them plain: most can happen there."""
    rounding: Rounding = rng.choice(ROUNDING).item()
    plain = ("float32" if rounding == "off" else "bfloat16"), (4, 4)
    free = str(rng.choice(DTYPES)), SHAPES[rng.integers(len(SHAPES))]
    name, shape = plain if rng.random() < 0.5 else free
    return Axes(
        replicas=int(rng.choice([1, 2, 3, 4, 4, 6, 8])),
        name=name,
        shape=shape,
        rounding=rounding,
        by_hand=bool(rng.random() < 0.1),
        stores=float(rng.choice([0.1, 0.3, 1.0])),
        merges=bool(rng.random() < 0.25),
    )


@dataclass(frozen=True)
class Store:
    """A value as the host gets it."""

    stream: popsr.DeviceToHostStream
    tensor: popsr.Tensor
    op: Op
    in_lockstep: bool  # no branch: all replicas are at the same element


class Operands:
    """An Ir that is being written: values to take, and what it stores.

    Args:
        axes: of the program.
        seed: of its first values and of host data.
        core: the program's core, instead of a plain one.
    """

    def __init__(self, axes: Axes, seed: int, core: Any = None) -> None:
        self.axes, self.rng = axes, np.random.default_rng(seed)
        self.ir = popsr.Ir(replication=axes.replicas)
        if core is not None:
            self.ir._use_core(core)
        self.ir.num_host_transfers = TRANSFERS
        self.ir.options.enable_stochastic_rounding = axes.rounding != "off"
        if axes.rounding != "off":
            self.ir.options.stochastic_rounding_mode = axes.rounding
        self.io = Streams()
        self.stores: list[Store] = []
        self.variables: list[popsr.Variable] = []
        self.pool: list[popsr.Tensor] = []
        self.refused = 0
        self.branches = 0

    def keep(self, tensor: popsr.Tensor, rng: np.random.Generator) -> popsr.Tensor:
        if tensor.nelms <= 1 << 14:
            self.pool.append(tensor)
        if rng.random() < self.axes.stores:
            self.store(tensor)
        return tensor

    def store(self, tensor: popsr.Tensor) -> None:
        stream = popsr.d2h_stream(tensor.shape, tensor.dtype, "out")
        ops.host_store(stream, tensor)
        self.stores.append(Store(stream, tensor, popsr.gcg().ops[-1], self.branches == 0))

    def grouping(self, rng: np.random.Generator) -> popsr.ReplicaGrouping:
        """Groups of one random size, mostly at a constant stride."""
        n = self.axes.replicas
        size = int(rng.choice([k for k in range(1, n + 1) if n % k == 0]))
        if rng.random() < 0.7:
            stride = int(rng.choice([k for k in range(1, n // size + 1) if n % (k * size) == 0]))
            return self.ir.replica_grouping(stride, size)
        labels = np.empty(n, int)
        labels[rng.permutation(n)] = np.arange(n) // size
        order: dict[int, int] = {}
        return self.ir.replica_grouping_from_assignments(
            [order.setdefault(int(a), len(order)) for a in labels]
        )

    def load(self, rng: np.random.Generator, shape: tuple[int, ...], name: str) -> popsr.Tensor:
        """From a stream that gives each replica its own data, or all the same."""
        replicated = self.axes.replicas > 1 and bool(rng.random() < 0.7)
        rows = (TRANSFERS, self.axes.replicas) if replicated else (TRANSFERS,)
        data = self.draw(rng, (*rows, *shape), name)
        return self.io.feed(data, replicated=replicated, transfers=True)

    def variable(self, rng: np.random.Generator, shape: tuple[int, ...], name: str) -> popsr.Variable:
        grouping = self.grouping(rng)
        rows = (grouping.num_groups,) if grouping.num_groups > 1 else ()
        variable = make_variable(self.draw(rng, (*rows, *shape), name), replica_grouping=grouping)
        self.variables.append(variable)
        return variable

    @staticmethod
    def draw(rng: np.random.Generator, shape: tuple[int, ...], name: str) -> Array:
        if name in FLOAT8:
            return rng.integers(0, 256, shape, np.uint8).view(np_dtype(name))
        return random_array(rng, shape, name)

    def seed_tensor(self, rng: np.random.Generator) -> popsr.Tensor:
        if rng.random() < 0.3:
            return popsr.constant(popsr.create_seeds(int(rng.integers(9))))
        replicated = self.axes.replicas > 1 and bool(rng.random() < 0.5)
        rows = (TRANSFERS, self.axes.replicas) if replicated else (TRANSFERS,)
        return self.io.feed(
            rng.integers(0, 3, (*rows, 2)).astype(np.uint32), replicated=replicated, transfers=True
        )

    def any(self, rng: np.random.Generator) -> popsr.Tensor:
        return self.pool[-1 - int(rng.integers(len(self.pool)) ** 2 // len(self.pool))]

    def floating(self, rng: np.random.Generator) -> popsr.Tensor:
        return self.fitting(rng, lambda t: t.dtype.name in FLOATS)

    def matrix(self, rng: np.random.Generator) -> popsr.Tensor:
        return self.fitting(rng, lambda t: t.dtype.name in FLOATS and t.rank == 2)

    def fitting(self, rng: np.random.Generator, fits: Callable[[popsr.Tensor], bool]) -> popsr.Tensor:
        found = [t for t in self.pool if fits(t)]
        if not found:
            found = [self.load(rng, (4, 4), "float32")]
            self.pool += found
        return found[rng.integers(len(found))]

    def like(self, t: popsr.Tensor, rng: np.random.Generator) -> popsr.Tensor:
        found = [u for u in self.pool if u.shape == t.shape and u.dtype == t.dtype]
        return found[rng.integers(len(found))]
