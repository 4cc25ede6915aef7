"""Values of a model: tensors, arrays that are known, and weights that become variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from popsr import dtypes, ops
from popsr._program.context import gcg, location
from popsr._program.create_graph import graph_input
from popsr._program.graph import Graph
from popsr._program.ir import Ir
from popsr._program.tensor import Tensor, Variable, constant
from popsr._program.variables.variables import variable
from popsr.bridge.onnx._node import Missing, Value, Weight
from popsr.bridge.onnx._rules import BehindGapError, NotSupportedError, ValueNeededError
from popsr.bridge.onnx._types import Array
from popsr.replicas import ReplicaGrouping

__all__ = ["Values"]

_MAX_SHARED = 64


class Values:
    """The values of one model.

    A value is a tensor, an array that is known when the model is read (constants, shapes, and what follows from them),
    a ``Weight`` that becomes a variable when an op reads it, a sequence of these, or None.

    Args:
        ir: the program.
        graph: the model's graph.
        groups: the replicas that share a weight, by its name.
    """

    def __init__(self, ir: Ir, graph: Graph, groups: Mapping[str, ReplicaGrouping]) -> None:
        """Without any value."""
        self._ir, self._graph, self._groups = ir, graph, groups
        self._constants: dict[tuple[object, ...], Tensor] = {}
        self._known: dict[tuple[int, int], tuple[Value, Tensor]] = {}  # by identity, while the array lives
        self.inputs: dict[Tensor, str] = {}
        self._outer: dict[int, int] = {}  # inputs of branches, and the tensors that are passed to them
        self.weights: list[tuple[Weight, Variable]] = []

    def constant(self, value: Array, dtype: dtypes.dtype) -> Tensor:
        """A constant of the current graph; small ones are made once."""
        if value.size > _MAX_SHARED:
            return constant(np.ascontiguousarray(value), dtype)
        key = (gcg()._id, dtype, value.shape, value.dtype, value.tobytes())
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = constant(np.ascontiguousarray(value).reshape(value.shape), dtype)
        return found

    def tensor(self, value: Value) -> Tensor:
        """A value as a tensor of the current graph."""
        if isinstance(value, Tensor):
            return value
        if isinstance(value, Weight):
            return self._weight(value)
        if isinstance(value, Missing):
            raise BehindGapError
        if not isinstance(value, np.ndarray):
            raise NotSupportedError("of a sequence" if isinstance(value, tuple) else "without an operand")
        key = (gcg()._id, id(value))
        found = self._known.get(key)
        if found is None:
            kind = dtypes.dtype.as_dtype(value.dtype)
            found = self._known[key] = value, self.constant(value, kind)
        return found[1]

    def _weight(self, weight: Weight) -> Tensor:
        """The input of the model's graph for a weight, whose variable is made when the first op reads it."""
        if weight.tensor is None:
            kind = dtypes.dtype.as_dtype(weight.array.dtype)
            with self._ir.main_graph, location(weight.name or "initializer", 1):
                grouping = self._groups.get(weight.name) or self._ir.replica_grouping()
                made = variable(rows_of(weight.array, grouping), kind, weight.name, replica_grouping=grouping)
            with self._graph:
                weight.tensor = graph_input(made.shape, kind, weight.name)
            self.weights.append((weight, made))
        return weight.tensor

    def known(self, value: Value, what: str) -> Array:
        """The elements of a value when the model is read.

        Raises:
            ValueNeededError: it is a tensor.
        """
        if isinstance(value, np.ndarray):
            return value
        if isinstance(value, Weight):
            return value.array
        if isinstance(value, Missing):
            raise BehindGapError
        if isinstance(value, Tensor):
            raise ValueNeededError(f"its {what} is not known when the model is read", self._origins(value))
        raise NotSupportedError(f"without {what}")

    def _origins(self, t: Tensor) -> list[str]:
        """Inputs of the model that a tensor depends on; none where it depends on a weight or on another graph."""
        core, names, todo, seen = self._ir._core, dict[str, None](), [t._id], set[int]()
        inputs = {tensor._id: name for tensor, name in self.inputs.items()}
        while todo:
            id_ = todo.pop()
            if id_ in seen:
                continue
            seen.add(id_)
            producer = core.tensor(id_).producer
            if id_ in inputs:
                names[inputs[id_]] = None
            elif id_ in self._outer:
                todo.append(self._outer[id_])
            elif producer is not None:
                todo += [each for each in core.op_inputs(producer) if each is not None]
            elif core.tensor(id_).kind != "constant":
                return []
        return list(names)

    def output(self, value: Value, taken: Sequence[Tensor]) -> Tensor:
        """A value as an output of the current graph, which no other output and no input is."""
        t = self.tensor(value)
        return ops.identity(t) if t in taken or t in gcg().inputs or not isinstance(value, Tensor) else t


def rows_of(value: Array, grouping: ReplicaGrouping) -> Array:
    """A value for each group, where there are several."""
    if grouping.num_groups == 1:
        return value
    return np.ascontiguousarray(np.broadcast_to(value, (grouping.num_groups, *value.shape)))
