"""Programs of views next to what they must do: every tensor is also an array of places in one memory.

Making a view rearranges places with NumPy; reading and writing happen at these places, a row of memory a replica. All
numbers are integers, so results are exact: in float16 as long as none exceeds 2048, however it is rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import popsr
from popsr import TensorByRef, ops
from popsr.ops import collectives, var_updates
from tests_py.support.helpers import Array, Streams, dtype, make_variable, np_dtype

Places = NDArray[np.int64]
Memory = NDArray[np.int32]  # (replicas, places)
Step = Callable[[Memory], None]


@dataclass(frozen=True)
class Value:
    """A tensor, its places, or both: graphs that are called are traced once for each."""

    tensor: popsr.Tensor | None
    places: Places | None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape on one replica."""
        if self.tensor is not None:
            return self.tensor.shape
        assert self.places is not None
        return self.places.shape

    @property
    def writable(self) -> bool:
        """True if each element is there once."""
        return self.places is None or len(np.unique(self.places)) == self.places.size


class Machine:
    """Appends ops to the current graph and steps to the model, in one order."""

    def __init__(self, ir: popsr.Ir, name: str = "int32") -> None:
        self.ir, self.dtype, self.np_dtype = ir, dtype(name), np_dtype(name)
        self.greatest = 2**31 if name == "int32" else 2048
        self.exact = True  # no number was greater
        self.replicas = ir.replication_factor
        self.size = 0
        self.steps: list[Step] = []
        self.masks: list[Callable[[Memory], NDArray[np.bool_]]] = []
        self.variables: list[tuple[Value, Array]] = []
        self.inputs: list[tuple[Value, Any]] = []
        self.fetched: list[Value] = []
        self.io = Streams()

    # Memory

    def allocate(self, shape: tuple[int, ...]) -> Places:
        """Places that no tensor has yet."""
        count = math.prod(shape)
        self.size += count
        return np.arange(self.size - count, self.size).reshape(shape)

    def write(self, places: Places, value: Callable[[Memory], Array]) -> None:
        """A step that writes rows, of the replicas that take the branch."""
        masks = list(self.masks)

        def step(memory: Memory) -> None:
            rows = np.ones(self.replicas, bool)
            for mask in masks:
                rows &= mask(memory)
            result = np.broadcast_to(value(memory), (self.replicas, *places.shape))
            self.exact = self.exact and bool(np.all(np.abs(result.astype(np.int64)) <= self.greatest))
            for replica in np.flatnonzero(rows):
                memory[replica, places] = result[replica]

        self.steps.append(step)

    def fresh(
        self, tensor: popsr.Tensor | None, shape: Any, value: Callable[[Memory], Array] | None
    ) -> Value:
        """An output with memory of its own; ``value`` is None without places."""
        if value is None:
            return Value(tensor, None)
        places = self.allocate(shape)
        self.write(places, value)
        return Value(tensor, places)

    # Inputs and outputs

    def variable(self, data: Array, grouping: popsr.ReplicaGrouping) -> Value:
        """A variable with a row of ``data`` for each group."""
        shaped = data if grouping.num_groups > 1 else data[0]
        made = make_variable(shaped.astype(self.np_dtype), replica_grouping=grouping)
        value = Value(made, self.allocate(data.shape[1:]))
        self.variables.append((value, data[np.array(grouping.assignment)]))
        return value

    def load(self, data: Array, *, replicated: bool) -> Value:
        """A host load; ``data`` has a row a replica if ``replicated``."""
        shape = data.shape[1:] if replicated else data.shape
        rows = data[0] if replicated and self.replicas == 1 else data
        tensor = self.io.feed(rows.astype(self.np_dtype), replicated=replicated)
        value = self.fresh(tensor, shape, lambda _: data if replicated else data[None])
        return Value(tensor, value.places)

    def fetch(self, x: Value) -> None:
        """Store it now."""
        assert x.tensor is not None
        assert x.places is not None
        self.io.fetch(x.tensor)
        copy = self.fresh(None, x.shape, lambda memory: memory[:, x.places])
        self.fetched.append(copy)

    def run(self, variables: Memory | None) -> tuple[list[Array], Memory]:
        """Fetched values, and memory with the variables' values for the next run."""
        memory = np.zeros((self.replicas, self.size), np.int32)
        for value, rows in self.variables:
            memory[:, value.places] = rows if variables is None else variables[:, value.places]
        for step in self.steps:
            step(memory)
        return [memory[:, value.places] for value in self.fetched], memory

    # Views

    def slice_(self, x: Value, bounds: Sequence[tuple[int, int | None, int]]) -> Value:
        """Along the first axes."""
        start, stop, step = (list(each) for each in zip(*bounds, strict=True))
        tensor = None if x.tensor is None else ops.slice_(x.tensor, start, stop, step)
        places = None if x.places is None else x.places[tuple(slice(*each) for each in bounds)]
        return Value(tensor, places)

    def transpose_(self, x: Value, permutation: tuple[int, ...]) -> Value:
        tensor = None if x.tensor is None else ops.transpose_(x.tensor, permutation)
        return Value(tensor, None if x.places is None else x.places.transpose(permutation))

    def reshape_(self, x: Value, shape: tuple[int, ...]) -> Value:
        tensor = None if x.tensor is None else ops.reshape_(x.tensor, shape)
        return Value(tensor, None if x.places is None else x.places.reshape(shape))

    def flatten_(self, x: Value) -> Value:
        tensor = None if x.tensor is None else x.tensor.flatten_()
        return Value(tensor, None if x.places is None else x.places.reshape(-1))

    def detach_(self, x: Value) -> Value:
        return Value(None if x.tensor is None else x.tensor.detach_(), x.places)

    def concat_(self, xs: Sequence[Value], axis: int) -> Value:
        tensors = [x.tensor for x in xs if x.tensor is not None]
        places = [x.places for x in xs if x.places is not None]
        return Value(
            ops.concat_(tensors, axis) if tensors else None, np.concatenate(places, axis) if places else None
        )

    # Ops

    def pure(self, fn: Callable[..., Any], model: Callable[..., Array], *xs: Value) -> Value:
        """An op that copies; ``model`` takes rows."""
        tensor = None if xs[0].tensor is None else fn(*(x.tensor for x in xs))
        if xs[0].places is None:
            return Value(tensor, None)
        shape = model(*(np.zeros((self.replicas, *x.shape), np.int32) for x in xs)).shape[1:]
        return self.fresh(tensor, shape, lambda memory: model(*(memory[:, x.places] for x in xs)))

    def inplace(self, fn: Callable[..., Any], model: Callable[..., Array], x: Value, *others: Value) -> Value:
        """An op that modifies ``x``; gives its alias."""
        tensor = None if x.tensor is None else fn(x.tensor, *(y.tensor for y in others))
        if x.places is not None:
            places = x.places
            self.write(
                places, lambda memory: model(memory[:, places], *(memory[:, y.places] for y in others))
            )
        return Value(tensor, x.places)

    def relu_(self, x: Value) -> Value:
        return self.inplace(ops.relu_, lambda a: np.maximum(a, 0), x)

    def add_(self, x: Value, y: Value) -> Value:
        return self.inplace(ops.add_, lambda a, b: a + b, x, y)

    def copy_(self, x: Value, y: Value) -> Value:
        return self.inplace(var_updates.copy_var_update_, lambda _, b: b, x, y)

    def double_(self, x: Value) -> Value:
        return self.inplace(lambda t: var_updates.accumulator_scale_(t, 2.0), lambda a: a * 2, x)

    def reduce_(self, x: Value, group: popsr.ReplicaGrouping) -> Value:
        labels = np.array(group.assignment)

        def model(rows: Array) -> Array:
            return np.stack([rows[labels == label].sum(0, dtype=np.int32) for label in labels])

        return self.inplace(lambda t: collectives.replicated_all_reduce_(t, "add", group), model, x)

    # Graphs

    def copied(self, x: Value) -> Value:
        """Source of a value of a graph."""
        assert x.places is not None
        places = x.places
        return self.fresh(None, x.shape, lambda memory: memory[:, places])

    def call(self, body: Callable[..., Value], target: Value, x: Value) -> Value:
        """``body(target by reference, x by value)``, which gives one tensor."""

        def traced(a: TensorByRef, b: popsr.Tensor) -> popsr.Tensor:
            result = body(Value(a, None), Value(b, None)).tensor
            assert result is not None
            return result

        graph = self.ir.create_graph(traced, target.tensor, x.tensor)
        tensor = ops.call(graph, target.tensor, x.tensor)[0]
        copy = self.copied(x)
        result = self.copied(body(Value(None, target.places), copy))
        return Value(tensor, result.places)

    def repeat(self, body: Callable[..., Value], count: int, x: Value, target: Value) -> Value:
        """``x = body(target by reference, x)``, so often."""

        def traced(b: popsr.Tensor, a: TensorByRef) -> popsr.Tensor:
            result = body(Value(a, None), Value(b, None)).tensor
            assert result is not None
            return result

        graph = self.ir.create_graph(traced, x.tensor, target.tensor)
        tensor = ops.repeat(graph, count, x.tensor, target.tensor)[0]
        carried = self.copied(x)
        for _ in range(count):
            carried = self.copied(body(Value(None, target.places), carried))
        return Value(tensor, carried.places)

    def conditional(
        self, condition: Value, bodies: Sequence[Callable[..., Value]], x: Value, y: Value
    ) -> Value:
        """``bodies[0](x, y)`` where the condition is positive, else ``bodies[1](x, y)``."""

        def traced(body: Callable[..., Value]) -> popsr.Graph:
            def fn(a: popsr.Tensor, b: popsr.Tensor) -> popsr.Tensor:
                result = body(Value(a, None), Value(b, None)).tensor
                assert result is not None
                return result

            return self.ir.create_graph(fn, x.tensor, y.tensor)

        arguments = [x.tensor, y.tensor]
        assert condition.tensor is not None
        assert condition.places is not None
        taken = ops.cast(condition.tensor, popsr.bool)
        tensor = ops.conditional(taken, traced(bodies[0]), traced(bodies[1]), arguments, arguments)[0]
        chosen = self.copied(condition).places
        result = self.allocate(tensor.shape)
        for body, positive in zip(bodies, (True, False), strict=True):
            self.masks.append(lambda memory, positive=positive: (memory[:, chosen] != 0) == positive)  # type: ignore[misc]
            outcome = body(self.copied(x), self.copied(y)).places
            self.write(result, lambda memory, outcome=outcome: memory[:, outcome])  # type: ignore[misc]
            self.masks.pop()
        return Value(tensor, result)
