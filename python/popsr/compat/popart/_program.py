"""From a model of ONNX to a program: micro batches in a loop, gradients, their reduction and the updates of weights."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from popsr import _core, dtypes, ops
from popsr._program.context import in_sequence
from popsr._program.create_graph import graph_input, graph_output
from popsr._program.graph import Graph
from popsr._program.ir import Ir
from popsr._program.op import Op
from popsr._program.streams import DeviceToHostStream, HostToDeviceStream, d2h_stream, h2d_stream
from popsr._program.tensor import Tensor, Variable, constant
from popsr._program.variables.variables import variable
from popsr._support.host.arguments import require_known
from popsr._support.text.shown import shown
from popsr.compat._objects.types import TensorInfo
from popsr.compat.popart._model import Array, Weight, read_graph
from popsr.compat.popart._optimisers import Optimizer
from popsr.compat.popart._updates import states_of, update
from popsr.errors import GraphError, ShapeError, UnknownNameError, UnsupportedError
from popsr.ops.collectives import replicated_all_reduce
from popsr.replicas import VariableSettings
from popsr.transforms import GradGraphInfo, autodiff

__all__ = ["ACCUM", "GRADIENT", "UPDATED", "Program", "Training"]

GRADIENT, ACCUM, UPDATED = "Gradient___", "Accum___", "UpdatedVar___"
Tensors = dict[str, Tensor]


class Training(NamedTuple):
    """Loss, optimiser, and the reduction of gradients.

    Attributes:
        loss: id of the loss.
        optimizer: the optimiser.
        mean: gradients are averaged over micro batches and replicas, not summed.
    """

    loss: str
    optimizer: Optimizer
    mean: bool


class Program:
    """A program of popsr for a model.

    Args:
        where: the session's class, for messages.
        proto: the model.
        weights: its initializers.
        anchors: ids of tensors to return.
        counts: batches of a step, micro batches of a batch, replicas.
        shapes: types and shapes of inputs that the model leaves open.
        training: of a training session.
    """

    def __init__(
        self,
        where: str,
        proto: Any,
        weights: Mapping[str, Weight],
        anchors: Sequence[str],
        counts: tuple[int, int, int],
        shapes: Mapping[str, TensorInfo],
        training: Training | None,
    ) -> None:
        """Write the program.

        Raises:
            UnknownNameError: an anchor is not a tensor of the model, or has no gradient.
            Error: as ``popsr.bridge.onnx.load`` and ``popsr.transforms.autodiff``.
        """
        self._where, self._anchors, self._training = where, list(anchors), training
        self.counts = self._batches, self._micro, self._replicas = counts
        forward = [name for name in anchors if not name.startswith((GRADIENT, ACCUM, UPDATED))]
        states = ("Accl___", "Accl1___", "Accl2___", "Accl3___", "Step___")
        self._states_anchored = [name for name in forward if name.startswith(states)]
        outputs = [name for name in forward if name not in self._states_anchored]
        outputs += [] if training is None else [training.loss]
        apart = [name[len(GRADIENT) :] for name in anchors if name.startswith(GRADIENT)]
        wanted = dict.fromkeys([*outputs, *apart])
        self.model, self.constants = read_graph(
            where, proto, weights, wanted, self._replicas, shapes, training is not None, apart
        )
        self.ir: Ir = self.model.ir
        self.ir.num_host_transfers = self._batches * self._micro
        self.variables: dict[str, Variable] = {}
        self.states: dict[str, Variable] = {}
        self.scalars: dict[str, Variable] = {}
        self.inputs: dict[str, HostToDeviceStream] = {}
        self.outputs: dict[str, DeviceToHostStream] = {}
        self._updates = {
            node.input[0]: node.output[0]
            for node in proto.graph.node
            if node.op_type == "CopyVarUpdate" and node.domain == "ai.graphcore"
        }
        with self.ir.main_graph, in_sequence():
            for name, weight in weights.items():
                self.variables[name] = _variable(name, weight.rows, weight.settings)
            self._check_updates()
            self._gradient = None if training is None else self._differentiate(training)
            if training is not None:
                self._add_states(training.optimizer, weights)
            held: Tensors = {**self.variables, **self.states, **self.scalars}
            _looped(self.ir, self._batches, [], held, self._batch)

    # Gradients and variables

    def _check_updates(self) -> None:
        for name in self._updates:
            if name not in self.variables:
                raise UnknownNameError(
                    f"{self._where}: copyvarupdate of what is not a variable, got {shown(name)}, expected an id of "
                    "addInitializedInputTensor"
                )

    def _differentiate(self, training: Training) -> GradGraphInfo | None:
        """The gradient graph of the loss for all weights that it depends on, and for anchors."""
        graph, loss = self.model.graph, self.model.outputs[training.loss]
        if loss.nelms != 1:
            raise ShapeError(
                f"{self._where}: loss is not one number, got {shown(training.loss)} of shape {list(loss.shape)}, "
                "expected a loss that is reduced, as by identityloss"
            )
        reached = _reached(self.ir, loss)
        floats = {
            name: t
            for name, t in self.model.inputs.items()
            if name in self.variables and t._id in reached and t.dtype.is_floating_point
        }
        stop = _stop_before(graph, reached, floats.values())
        if stop is not None:
            raise UnsupportedError(
                f"{self._where}: gradients of weights do not pass an op, got {stop.kind} at {stop.location}, expected "
                "ops with a gradient, or a detach where none is wanted"
            )
        needed = [self._tensor(n[len(GRADIENT) :]) for n in self._anchors if n.startswith(GRADIENT)]
        self._trained, made = list(floats), None
        with contextlib.suppress(GraphError):
            made = _gradients(graph, loss, [*floats.values(), *needed])
        if made is None:  # a weight may be behind a detach alone
            self._trained = [name for name, t in floats.items() if _has_gradient(graph, loss, t)]
            made = _gradients(graph, loss, [*(floats[name] for name in self._trained), *needed])
        for name in (name[len(ACCUM) :] for name in self._anchors if name.startswith(ACCUM)):
            if name not in self._trained:
                raise UnknownNameError(
                    f"{self._where}: anchor without a gradient, got {shown(ACCUM + name)}, expected a weight that "
                    "the loss depends on"
                )
        return made

    def _tensor(self, name: str) -> Tensor:
        return self.model.tensors.get(name) or self.model.inputs.get(name) or self.model.outputs[name]

    def _add_states(self, optimizer: Optimizer, weights: Mapping[str, Weight]) -> None:
        for name in self._trained:
            weight, groups = self.variables[name], weights[name].settings
            for prefix, state in states_of(optimizer, name, weight.dtype).items():
                extents = weight.shape if state.shape is None else state.shape
                rows = groups.shapeOnHost(extents, self._replicas)
                given = self.variables.get(prefix + name)  # of a model that a training session saved
                if given is None:
                    first = np.full(rows, state.initial, state.dtype.as_numpy())
                    given = _variable(prefix + name, first, groups)
                self.states[prefix + name] = given
        for name, number in optimizer.numbers().items():
            self.scalars[name] = variable(np.float32(number), dtypes.float32, name)

    # A step

    def _batch(self, _: Sequence[Tensor], held: Tensors) -> list[Tensor]:
        """One batch: its micro batches, the reduction of gradients, the updates."""
        training = self._training
        if training is None or self._gradient is None:
            _looped(self.ir, self._micro, [], held, self._micro_batch)
            self._store_states(held, {})
            return []
        sums = _looped(self.ir, self._micro, self._zeros(), held, self._micro_batch)
        reduced = {
            name: self._reduced(training, name, total)
            for name, total in zip(self._trained, sums, strict=True)
        }
        gradients = self._clipped(training.optimizer, self._unscaled(training.optimizer, held, reduced))
        for name, gradient in gradients.items():
            suffix = "___" + name
            states = {key[: -len(name)]: held[key] for key in self.states if key.endswith(suffix)}
            scalars = {key: held[key] for key in self.scalars}
            update(training.optimizer, name, held[name], gradient, states, scalars)
        self._store_states(held, reduced)
        return []

    def _zeros(self) -> list[Tensor]:
        """First values of the sums over several micro batches."""
        if self._micro == 1:
            return []
        like = [(self.variables[name].shape, _wide(self.variables[name].dtype)) for name in self._trained]
        return [constant(np.zeros(shape, kind.as_numpy()), kind) for shape, kind in like]

    def _micro_batch(self, sums: Sequence[Tensor], held: Tensors) -> list[Tensor]:
        """One micro batch: the model, its gradients, added to the sums, and the stores of anchors."""
        given = {
            name: held[name] if name in self.variables else self._load(name, t)
            for name, t in self.model.inputs.items()
        }
        info = ops.call_with_info(
            self.model.graph, inputs_dict={self.model.inputs[n]: t for n, t in given.items()}
        )
        found = dict(zip(self.model.outputs, info.outputs, strict=False))
        gradients: dict[Tensor, Tensor] = {}
        if self._gradient is not None and self._training is not None:
            loss = self.model.outputs[self._training.loss]
            scale = self._scale(self._training.optimizer, held)
            first = (
                constant(np.full(loss.shape, scale, loss.dtype.as_numpy()), loss.dtype)
                if isinstance(scale, float)
                else (ops.reshape(ops.cast(scale, loss.dtype), loss.shape))
            )
            back = ops.call_with_info(
                self._gradient.graph, first, inputs_dict=self._gradient.inputs_dict(info)
            )
            gradients = dict(zip(self._gradient.outputs, back.outputs, strict=True))
            own = [gradients[self.model.inputs[name]] for name in self._trained]
            wide = [ops.cast(each, _wide(each.dtype)) for each in own]
            sums = [ops.add(*pair) for pair in zip(sums, wide, strict=True)] if sums else wide
        for name in self._anchors:
            if name.startswith(GRADIENT):
                if not gradients:
                    raise UnknownNameError(
                        f"{self._where}: no gradients, got anchor {shown(name)}, expected a TrainingSession"
                    )
                self._store(name, gradients[self._tensor(name[len(GRADIENT) :])])
            elif name in found:
                self._store(name, found[name])
        for name, result in self._updates.items():
            ops.var_updates.copy_var_update_(held[name], found[result])
        return list(sums)

    def _scale(self, optimizer: Optimizer, held: Tensors) -> float | Tensor:
        found = optimizer.value("lossScaling", "")
        return found.val if found.isConst else held[optimizer.tensor_name("lossScaling", "")]

    def _reduced(self, training: Training, name: str, total: Tensor) -> Tensor:
        """The gradient of a weight over micro batches and the replicas that share the weight."""
        group = self.variables[name].replica_grouping
        if group.group_size > 1:
            total = replicated_all_reduce(total, "add", group)
        count = self._micro * group.group_size
        return total * (1.0 / count) if training.mean and count > 1 else total

    def _unscaled(self, optimizer: Optimizer, held: Tensors, gradients: Tensors) -> Tensors:
        scale = self._scale(optimizer, held)
        if isinstance(scale, float):
            return gradients if scale == 1.0 else {name: g * (1.0 / scale) for name, g in gradients.items()}
        return {name: ops.div(g, ops.cast(scale, g.dtype)) for name, g in gradients.items()}

    def _clipped(self, optimizer: Optimizer, gradients: Tensors) -> Tensors:
        clipped = dict(gradients)
        for each in optimizer._clips:
            names = list(gradients) if each.weightIds is None else each.weightIds
            self._check_clip(names, clipped)
            if names:
                total = functools.reduce(ops.add, [ops.sumsquare(clipped[name]) for name in names])
                greatest = constant(np.asarray(each.maxNorm, total.dtype.as_numpy()), total.dtype)
                factor = ops.div(greatest, ops.maximum(ops.sqrt(total), greatest))
                clipped.update((name, ops.mul(clipped[name], factor)) for name in names)
        return clipped

    def _check_clip(self, names: list[str], gradients: Tensors) -> None:
        require_known(f"{self._where}: clipWeights of what has no gradient", names, gradients)
        if len({self.variables[name].replica_grouping for name in names}) > 1:
            raise UnsupportedError(
                f"{self._where}: clipWeights of different groups, got {shown(names)}, expected weights of one grouping"
            )

    # Streams

    def _load(self, name: str, like: Tensor) -> Tensor:
        if name not in self.inputs:
            self.inputs[name] = h2d_stream(like.shape, like.dtype, name)
        return ops.host_load(self.inputs[name])

    def _store(self, name: str, t: Tensor) -> None:
        if name not in self.outputs:
            self.outputs[name] = d2h_stream(t.shape, t.dtype, name)
        ops.host_store(self.outputs[name], t)

    def _store_states(self, held: Tensors, reduced: Tensors) -> None:
        """Store what a batch leaves, once for each of its micro batches."""
        found = {UPDATED + name: t for name, t in held.items()}
        found |= {ACCUM + name: t for name, t in reduced.items()}
        found |= {name: held[name] for name in self._states_anchored if name in held}
        for name in self._anchors:
            if name not in self._states_anchored and not name.startswith((UPDATED, ACCUM)):
                continue
            if name not in found:
                raise UnknownNameError(
                    f"{self._where}: no such anchor, got {shown(name)}, expected a weight or state of the optimiser"
                )
            for _ in range(self._micro):
                self._store(name, found[name])


def _variable(name: str, rows: Array, settings: VariableSettings) -> Variable:
    """A variable under its name."""
    kind = dtypes.dtype.as_dtype(rows.dtype)
    made = variable(rows, kind, name, variable_settings=settings)
    if made.id != name:
        raise GraphError(f"variable: name is taken, got {shown(name)}, expected a name of its own")
    return made


def _wide(kind: dtypes.dtype) -> dtypes.dtype:
    """The type that updates compute in."""
    return kind if kind == dtypes.float64 else dtypes.float32


def _reached(ir: Ir, t: Tensor) -> set[int]:
    """Ids of the tensors that a tensor depends on in its graph."""
    core, seen, todo = ir._core, set[int](), [t._id]
    while todo:
        id_ = todo.pop()
        if id_ not in seen:
            seen.add(id_)
            producer = core.tensor(id_).producer
            if producer is not None:
                todo += [each for each in core.op_inputs(producer) if each is not None]
    return seen


@functools.cache
def _without_gradient() -> frozenset[str]:
    """Ops at which gradients end although they depend on their operands; a detach is asked for."""
    rows = _core.op_schemas()
    return frozenset(row["name"] for row in rows if row["gradient"] in ("none", "error")) - {"detach"}


def _stop_before(graph: Graph, reached: set[int], weights: Iterable[Tensor]) -> Op | None:
    """The first op without a gradient from floats of weights to floats that the loss depends on."""
    moved = {t._id for t in weights}
    for op in graph.ops:
        if op.kind == "detach" or not moved & _floats(op.inputs):
            continue
        made = _floats(op.outputs)
        if made & reached and _stops(op):
            return op
        moved |= made
    return None


def _floats(tensors: Iterable[Tensor | None]) -> set[int]:
    return {t._id for t in tensors if t is not None and t.dtype.is_floating_point}


def _stops(op: Op) -> bool:
    """True if no gradient passes an op, or one in the graphs that it runs."""
    inside = (each for graph in op.called_graphs for each in graph.ops)
    return op.kind in _without_gradient() or any(
        _floats(each.inputs) and _floats(each.outputs) and _stops(each) for each in inside
    )


def _gradients(graph: Graph, loss: Tensor, required: Sequence[Tensor]) -> GradGraphInfo | None:
    return autodiff(graph, [loss], list(dict.fromkeys(required))) if required else None


def _has_gradient(graph: Graph, loss: Tensor, t: Tensor) -> bool:
    try:
        return autodiff(graph, [loss], [t]) is not None
    except GraphError:
        return False


def _looped(
    ir: Ir,
    count: int,
    carried: list[Tensor],
    held: Tensors,
    body: Callable[[Sequence[Tensor], Tensors], list[Tensor]],
) -> list[Tensor]:
    """Run a body several times: carried tensors go from one iteration to the next, held ones may be modified."""
    if count == 1:
        return body(carried, held)
    graph = ir.create_empty_graph("batches")
    with graph, in_sequence():
        inner = [graph_input(t.shape, t.dtype, f"carried{i}") for i, t in enumerate(carried)]
        shared = {name: graph_input(t.shape, t.dtype, name, by_ref=True) for name, t in held.items()}
        for t in body(inner, shared):
            graph_output(t)
    bound = {shared[name]: t for name, t in held.items()}
    return list(ops.repeat(graph, count, *carried, inputs_dict=bound))
