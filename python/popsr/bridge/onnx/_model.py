"""A model of ONNX as a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from popsr import ops
from popsr._program.context import in_sequence
from popsr._program.graph import Graph
from popsr._program.ir import Ir
from popsr._program.streams import DeviceToHostStream, HostToDeviceStream, d2h_stream, h2d_stream
from popsr._program.tensor import Tensor, Variable
from popsr._session.session import Session
from popsr._support.host.arguments import read_mapping
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr._support.text.summary import Summarised, Summary, line
from popsr.bridge.onnx._node import Weight
from popsr.bridge.onnx._train.training import OnnxTraining, build_training
from popsr.bridge.onnx._types import Array
from popsr.errors import ArgumentTypeError, SessionError, UnknownNameError
from popsr.ops.program.control import CallSiteInfo

__all__ = ["OnnxModel"]


@public
class OnnxModel(Summarised):
    """A model that was read from ONNX; made by ``popsr.bridge.onnx.load``.

    Attributes:
        name: name of the model, of its file or of its graph.
        ir: the program.
        graph: the model's nodes. Its inputs are the model's, then the weights.
        inputs: inputs of the graph by ONNX's name.
        outputs: outputs of the graph by ONNX's name.
        variables: variables of the main graph by the name of their initializer.
        weights: inputs of the graph that variables are passed to, by the name of their initializer.
        initial: initial values of the variables, by the name of their initializer.
        fixed: initializers of floats that are constants, because they are no weights or so that was asked, by name.
        tensors: tensors of the graph by ONNX's name; values that are known when the model is read are not among them.
        input_streams: streams of the main graph that inputs are loaded from.
        output_streams: streams of the main graph that outputs are stored to.
    """

    name: str
    ir: Ir
    graph: Graph
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    variables: dict[str, Variable]
    weights: dict[str, Tensor]
    initial: dict[str, Array]
    fixed: dict[str, Array]
    tensors: dict[str, Tensor]
    input_streams: dict[str, HostToDeviceStream]
    output_streams: dict[str, DeviceToHostStream]
    _session: Session | None
    _for_training: Callable[[int | None], OnnxModel]

    def __init__(self) -> None:
        raise ArgumentTypeError("OnnxModel: cannot be constructed, expected popsr.bridge.onnx.load")

    @classmethod
    def _of(
        cls,
        name: str,
        ir: Ir,
        graph: Graph,
        inputs: Mapping[str, Tensor],
        outputs: Mapping[str, Tensor],
        weights: Sequence[tuple[Weight, Variable]],
        fixed: Mapping[str, Array],
        tensors: Mapping[str, Tensor],
    ) -> OnnxModel:
        """A model without streams."""
        self = cls.__new__(cls)
        self.name, self.ir, self.graph = name, ir, graph
        self.inputs, self.outputs, self.tensors = dict(inputs), dict(outputs), dict(tensors)
        self.variables = {each.name: made for each, made in weights}
        self.weights = {each.name: each.tensor for each, _ in weights if each.tensor is not None}
        self.initial = {each.name: each.array for each, _ in weights}
        self.fixed = dict(fixed)
        self.input_streams, self.output_streams, self._session = {}, {}, None
        return self

    def call(self, inputs: Mapping[str, Tensor]) -> CallSiteInfo:
        """Append a call of the graph with the model's variables.

        Args:
            inputs: a tensor of the current graph for each input.
        Returns:
            The call; its outputs are in the order of the model's.
        Raises:
            UnknownNameError: a name that is not of an input, or an input without a tensor.
        """
        given = read_mapping("call", "inputs", inputs)
        self._check_names("call", given)
        bound = {self.inputs[name]: given[name] for name in self.inputs}
        bound.update({self.weights[name]: variable for name, variable in self.variables.items()})
        return ops.call_with_info(self.graph, inputs_dict=bound)

    def _add_streams(self) -> None:
        """Append to the main graph: load all inputs, call the graph, store all outputs."""
        with self.ir.main_graph, in_sequence():
            loaded = {}
            for name, t in self.inputs.items():
                stream = self.input_streams[name] = h2d_stream(t.shape, t.dtype, name)
                loaded[name] = ops.host_load(stream)
            results = self.call(loaded).outputs
            for (name, t), result in zip(self.outputs.items(), results, strict=True):
                stored = self.output_streams[name] = d2h_stream(t.shape, t.dtype, name)
                ops.host_store(stored, result)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run the main graph once, on data by input name: a row for each replica where there are several.

        Raises:
            UnknownNameError: a name that is not of an input, or an input without data.
            SessionError: the model was read with ``streams=False``.
        """
        given = read_mapping("run", "inputs", inputs)
        self._check_names("run", given)
        if not self.output_streams:
            raise SessionError(
                "run: model without streams, got streams=False, expected load(..., streams=True)"
            )
        if self._session is None:
            self._session = Session(self.ir)
        with self._session as session:
            stored = session.run({self.input_streams[name]: given[name] for name in self.inputs})
        return {name: stored[stream] for name, stream in self.output_streams.items()}

    def train_step(
        self,
        loss: str | Callable[..., Tensor] | None = None,
        optimizer: Any = None,
        *,
        replicas: int | None = None,
        targets: Mapping[str, tuple[Iterable[int], Any]] | None = None,
        **settings: Any,
    ) -> OnnxTraining:
        """Make a program that trains the model: gradients of a loss, their mean over the replicas, an update.

        The model is read once more, without streams, so that its own program stays; weights start as in the file.
        Losses of replicas are means over equal parts of a batch, so that a mean of their gradients is the batch's.

        Args:
            loss: name of an output of one element, by default the only output; or a function of the outputs by name,
                and of targets as keywords, that makes such a tensor of popsr's ops.
            optimizer: a module of ``popsr.addons.optimizers``, or a function of a weight and its gradient that
                appends an update.
            replicas: their number. Default: that of the model.
            targets: inputs of the loss that the model does not have, such as labels: shape and dtype by name.
            settings: keywords of the optimizer, as ``lr=0.1``.
        Returns:
            The step, with ``run``, ``weights``, and an ``ir`` that ``popsr.prove`` takes.
        Raises:
            GradientError: the model has no weights.
            ShapeError: the loss has several elements.
            UnknownNameError: an output that is not there.
            Error: as ``load`` and ``popsr.transforms.autodiff``.
        """
        if not hasattr(optimizer, "create_graph") and not callable(optimizer):
            raise ArgumentTypeError(
                f"train_step: not an optimizer, got {shown(optimizer)}, expected a module of popsr.addons.optimizers "
                "or a function of a weight and its gradient"
            )
        return build_training(self._for_training(replicas), loss, optimizer, targets, settings)

    def _check_names(self, where: str, given: Mapping[str, Any]) -> None:
        if given.keys() != self.inputs.keys():
            raise UnknownNameError(
                f"{where}: not the model's inputs, got {shown(list(given))}, expected {shown(list(self.inputs))}"
            )

    def __repr__(self) -> str:
        return line(
            f"OnnxModel[{self.name}: {self.ir.replication_factor} replicas {len(self.graph.ops)} ops "
            f"{len(self.inputs)} inputs {len(self.variables)} variables {len(self.outputs)} outputs]"
        )

    def _summary(self) -> Summary:
        rows: list[tuple[object, ...]] = []
        for role, tensors in (("input", self.inputs), ("variable", self.weights), ("output", self.outputs)):
            rows += [(name, role, t.dtype.name, list(t.shape)) for name, t in tensors.items()]
            if role == "variable":
                rows += [
                    (name, "constant", array.dtype.name, list(array.shape))
                    for name, array in self.fixed.items()
                ]
        return Summary(repr(self), ("name", "role", "dtype", "shape"), rows, len(rows))
