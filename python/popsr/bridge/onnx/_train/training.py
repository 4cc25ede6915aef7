"""Training steps of models of ONNX: the loss, its gradients, a mean over replicas, an update of each weight."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from popsr import dtypes, ops
from popsr._program.context import in_sequence
from popsr._program.create_graph import graph_input, graph_output
from popsr._program.graph import Graph
from popsr._program.ir import Ir
from popsr._program.streams import DeviceToHostStream, HostToDeviceStream, d2h_stream, h2d_stream
from popsr._program.tensor import Tensor, Variable, constant
from popsr._session.session import Session
from popsr._support.host.arguments import read_mapping, require_known
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr._support.text.summary import Summarised, Summary, line
from popsr.bridge.onnx._types import Array
from popsr.errors import ArgumentTypeError, GradientError, GraphError, ShapeError, UnknownNameError
from popsr.ops import collectives
from popsr.transforms import autodiff

__all__ = ["OnnxTraining", "build_training"]

_WHERE = "train_step"


class Model(Protocol):
    """A model without streams; see ``OnnxModel``."""

    name: str
    ir: Ir
    graph: Graph
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    variables: dict[str, Variable]
    weights: dict[str, Tensor]
    fixed: dict[str, Array]


@public
class OnnxTraining(Summarised):
    """A training step of a model of ONNX; made by ``OnnxModel.train_step``.

    Attributes:
        ir: the program.
        variables: the weights by the name of their initializer.
        input_streams: streams of the inputs and targets by name.
        losses: stream of the loss.
    """

    ir: Ir
    variables: dict[str, Variable]
    input_streams: dict[str, HostToDeviceStream]
    losses: DeviceToHostStream
    _name: str
    _session: Session | None

    def __init__(self) -> None:
        raise ArgumentTypeError("OnnxTraining: cannot be constructed, expected OnnxModel.train_step")

    @classmethod
    def _of(cls, model: Model, streams: dict[str, HostToDeviceStream]) -> OnnxTraining:
        self = cls.__new__(cls)
        self.ir, self.variables, self._name = model.ir, model.variables, model.name
        self.input_streams, self._session = streams, None
        return self

    def run(self, inputs: Mapping[str, Any]) -> Array:
        """Take a step, on data by name of input or target: a row for each replica where there are several.

        Returns:
            The loss before the step, of each replica where there are several.
        Raises:
            UnknownNameError: a name that is not of an input, or an input without data.
        """
        given = read_mapping("run", "inputs", inputs)
        if given.keys() != self.input_streams.keys():
            raise UnknownNameError(
                f"run: not the step's inputs, got {shown(list(given))}, expected {shown(list(self.input_streams))}"
            )
        with self._opened() as session:
            stored = session.run({stream: given[name] for name, stream in self.input_streams.items()})
        return np.asarray(stored[self.losses])

    def weights(self) -> dict[str, Array]:
        """The weights after the steps that ran, by the name of their initializer; see ``popsr.bridge.onnx.export``."""
        with self._opened() as session:
            return {name: session.get_tensor_data(each).copy() for name, each in self.variables.items()}

    def _opened(self) -> Session:
        if self._session is None:
            self._session = Session(self.ir)
        return self._session

    def __repr__(self) -> str:
        return line(
            f"OnnxTraining[{self._name}: {self.ir.replication_factor} replicas {len(self.input_streams)} inputs "
            f"{len(self.variables)} weights]"
        )

    def _summary(self) -> Summary:
        rows: list[tuple[object, ...]] = [
            (name, "input", stream.dtype.name, list(stream.shape))
            for name, stream in self.input_streams.items()
        ]
        rows += [(name, "weight", t.dtype.name, list(t.shape)) for name, t in self.variables.items()]
        return Summary(repr(self), ("name", "role", "dtype", "shape"), rows, len(rows))


def _gradients(graph: Graph, weights: Mapping[str, Tensor]) -> Any:
    """The graph of the gradients of all weights.

    Raises:
        GradientError: no gradient reaches one, as through numbers that are quantised.
    """
    try:
        return autodiff(graph, grads_required=list(weights.values()))
    except GraphError as error:
        lost = [name for name, t in weights.items() if f"/{t.name}'" in str(error)] or list(weights)
        raise GradientError(
            f"{_WHERE}: no gradient reaches a weight, got {shown(lost)}, expected weights that the loss depends on by "
            "floats alone, or trainable= of load without those"
        ) from error


def build_training(
    model: Model,
    loss: str | Callable[..., Tensor] | None,
    optimizer: Any,
    targets: Mapping[str, tuple[Iterable[int], Any]] | None,
    settings: Mapping[str, Any],
) -> OnnxTraining:
    """The step in the main graph of a model without streams; see ``OnnxModel.train_step``."""
    if not model.variables:
        raise GradientError(
            f"{_WHERE}: model without weights, got {shown(list(model.fixed))} as constants, expected trainable= of load"
        )
    place = _loop_of_weights(model.graph, set(model.weights.values()))
    if place is not None:
        raise GradientError(
            f"{_WHERE}: gradients stop at a loop, got {shown(place)}, expected a loop of known passes, at most 1,024 "
            "or read with unroll=True"
        )
    shapes = {name: (t.shape, t.dtype) for name, t in model.inputs.items()}
    extra = {} if targets is None else read_mapping(_WHERE, "targets", targets)
    for name, (shape, kind) in extra.items():
        if name in shapes:
            raise UnknownNameError(
                f"{_WHERE}: target has the name of an input, got {shown(name)}, expected another"
            )
        shapes[name] = tuple(int(n) for n in shape), dtypes.dtype.as_dtype(kind)
    graph, data, weights = _loss_graph(model, loss, shapes, list(extra))
    with model.ir.main_graph, in_sequence():
        streams = {name: h2d_stream(*each, name) for name, each in shapes.items()}
        bound = {data[name]: ops.host_load(stream) for name, stream in streams.items()}
        bound.update({weights[name]: each for name, each in model.variables.items()})
        call = ops.call_with_info(graph, inputs_dict=bound)
        backward = _gradients(graph, weights)
        seed = constant(np.ones(call.outputs[0].shape), call.outputs[0].dtype)
        gradients = ops.call(backward.graph, seed, inputs_dict=backward.inputs_dict(call))
        made = OnnxTraining._of(model, streams)
        made.losses = d2h_stream(call.outputs[0].shape, call.outputs[0].dtype, "loss")
        ops.host_store(made.losses, call.outputs[0])
        for each, gradient in zip(model.variables.values(), gradients, strict=True):
            _update(each, gradient, optimizer, settings)
    return made


def _loop_of_weights(graph: Graph, depends: set[Tensor | None]) -> str | None:
    """The place of a loop whose results depend on weights: their gradients would be those of the ways around it."""
    for op in graph.ops:
        if depends.isdisjoint(op.inputs):
            continue
        floats = [t for t in op.outputs if t.dtype.is_floating_point]
        if op.kind in ("repeat", "while_loop") and floats:
            return op.location
        for inner in op.called_graphs:
            place = _loop_of_weights(inner, set(inner.inputs))
            if place is not None:
                return place
        depends.update(floats)
    return None


def _loss_graph(
    model: Model,
    loss: str | Callable[..., Tensor] | None,
    shapes: Mapping[str, Any],
    targets: list[str],
) -> tuple[Graph, dict[str, Tensor], dict[str, Tensor]]:
    """A graph of the loss, its inputs for data, and those for weights."""
    graph = model.ir.create_empty_graph("loss")
    with graph, in_sequence():
        data = {name: graph_input(shape, kind, name) for name, (shape, kind) in shapes.items()}
        weights = {name: graph_input(t.shape, t.dtype, name) for name, t in model.weights.items()}
        bound = {t: data[name] for name, t in model.inputs.items()}
        bound.update({t: weights[name] for name, t in model.weights.items()})
        results = dict(
            zip(model.outputs, ops.call_with_info(model.graph, inputs_dict=bound).outputs, strict=True)
        )
        graph_output(_loss_of(loss, results, {name: data[name] for name in targets}))
    return graph, data, weights


def _loss_of(
    loss: str | Callable[..., Tensor] | None, results: Mapping[str, Tensor], targets: Mapping[str, Tensor]
) -> Tensor:
    if callable(loss):
        made = loss(results, **targets)
    else:
        name = next(iter(results)) if loss is None and len(results) == 1 else loss
        require_known(f"{_WHERE}: loss is not an output", [name], results)
        made = ops.identity(results[name])  # type: ignore[index]
    if not isinstance(made, Tensor):
        raise ArgumentTypeError(f"{_WHERE}: loss is not a tensor, got {shown(made)}, expected one number")
    if made.nelms != 1 or not made.dtype.is_floating_point:
        raise ShapeError(
            f"{_WHERE}: loss is not one float, got {made.dtype.name} {list(made.shape)}, expected an output of one "
            "element, or a function of the outputs that makes one"
        )
    return made


def _update(each: Variable, gradient: Tensor, optimizer: Any, settings: Mapping[str, Any]) -> None:
    """The mean of a gradient over the replicas that share its weight, then the optimizer's step."""
    grouping = each.replica_grouping
    if grouping.group_size > 1:
        gradient = collectives.replicated_all_reduce(gradient, "mean", grouping)
    if not hasattr(optimizer, "create_graph"):
        optimizer(each, gradient, **settings)
        return
    factories, step = optimizer.create_graph(each, gradient, grouping, **settings)
    step.bind(factories.init(each.name)).call(each, gradient)
