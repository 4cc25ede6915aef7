"""``popart.Builder``: records a model of ONNX."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from popsr._support.host.arguments import (
    is_a,
    read_a,
    read_choice,
    read_int,
    read_items,
    read_mapping,
    read_path,
    read_text,
    require_known,
)
from popsr._support.host.files import file_errors
from popsr._support.lazy import LazyModule
from popsr._support.text.shown import shown
from popsr.bridge.onnx._places import OPSET, domain_of
from popsr.compat._objects.types import TensorInfo
from popsr.compat.popart._external import require_new, write_data
from popsr.compat.popart._recording.described import Described, code_of, info_of, since_of
from popsr.compat.popart._recording.graphcore_ops import GraphcoreOps
from popsr.compat.popart._recording.node_attributes import attribute_of
from popsr.compat.popart._recording.onnx_ops import DEFAULT_OPSET, OPSETS, OnnxOps
from popsr.compat.popart._recording.signatures import Signature, debug_name
from popsr.compat.popart._settings import STREAM_MODE, InputSettings
from popsr.errors import ArgumentTypeError, UnknownNameError
from popsr.io._onnx.format import entries_of, metadata, require_onnx, set_entries
from popsr.io._settings import settings_from, settings_text_of, write_factor
from popsr.replicas import VariableSettings

if TYPE_CHECKING:
    from popsr.compat.popart import _model
else:
    _model = LazyModule("popsr.compat.popart._model")

__all__ = ["Builder"]

_IR_VERSION = 10  # the first with metadata of nodes and tensors


class Builder(Described):
    """Records ops as nodes of a model of ONNX, which ``getModelProto`` returns and sessions run.

    Ops of ONNX are methods of ``aiOnnx`` and ``aiOnnxOpset6`` to ``aiOnnxOpset11``, PopART's own methods of
    ``aiGraphcore``. Tensors are ids, which are names of ONNX. Every method that adds something takes a name as its last
    argument, ``debugContext``.

    Args:
        modelProtoOrFilename: bytes of a model, or its file, to go on from.
        opsets: versions of domains, ``{"ai.onnx": 10, "ai.graphcore": 1}``. Default: the version of the first op.
    """

    def __init__(
        self,
        modelProtoOrFilename: Any = None,
        opsets: Mapping[str, int] | None = None,
        builderCore: Any = None,
    ) -> None:
        """An empty model.

        Raises:
            ImportError: onnx is not installed.
            AttributeValueError: a version of ONNX that programs of PopART do not have.
        """
        super().__init__()
        del builderCore
        self._onnx = require_onnx("Builder")
        self._model = self._onnx.ModelProto(ir_version=_IR_VERSION, producer_name="popart")
        self._graph = self._model.graph
        self._graph.name = "BuilderGraph"
        self._parent: Builder | None = None
        self._opset: int | None = None
        self._known: dict[str, TensorInfo | None] = {}
        self._initializers: dict[str, Any] = {}
        self._places: dict[str, int] = {}  # of nodes in the graph, by output
        self._names: set[str] = set()
        self._next: dict[str, int] = {}
        self._prefix = ""
        self._order: list[str] = []  # inputs, and tensors of the graph around
        if modelProtoOrFilename is not None:
            self._go_on_from(_model.parse_model("Builder", modelProtoOrFilename)[0])
        given = read_mapping("Builder", "opsets", opsets)
        if "ai.onnx" in given:
            self._opset = read_choice("Builder", "version of ONNX", given["ai.onnx"], OPSETS)

    def _go_on_from(self, model: Any) -> None:
        self._model.CopyFrom(model)
        self._graph = self._model.graph
        for each in model.opset_import:
            if domain_of(each) == "":
                self._opset = int(each.version)
        for each in (*self._graph.input, *self._graph.initializer):
            self._known[each.name] = info_of(each)
        self._initializers.update((each.name, each) for each in self._graph.initializer)
        for node in self._graph.node:
            self._register(node)

    # Ops

    @property
    def aiOnnx(self) -> OnnxOps:
        """Ops of ONNX, of the version of the model: 10 unless it has another."""
        return OnnxOps(self, self._root._opset or DEFAULT_OPSET)

    def __getattr__(self, name: str) -> Any:
        version = name.removeprefix("aiOnnxOpset")
        if version == name or version not in map(str, OPSETS):
            raise AttributeError(f"'Builder' object has no attribute {shown(name)}")
        return OnnxOps(self, int(version))

    @property
    def aiGraphcore(self) -> GraphcoreOps:
        """PopART's own ops."""
        return GraphcoreOps(self)

    aiGraphcoreOpset1 = aiGraphcore

    def reshape_const(
        self, aiOnnx: OnnxOps, args: Iterable[str], shape: Sequence[int], debugContext: str = ""
    ) -> str:
        """A reshape to a shape that is known: ``builder.reshape_const(builder.aiOnnx, [x], [2, 3])``."""
        where = "reshape_const"
        extents = [read_int(f"{where}: shape", each, -1) for each in read_items(where, "shape", shape)]
        wanted = read_a(f"{where}: aiOnnx", aiOnnx, OnnxOps).constant(np.array(extents, np.int64))
        return str(aiOnnx.reshape([*read_items(where, "args", args, kind="ids"), wanted], debugContext))

    def customOp(
        self,
        opName: str,
        opVersion: int,
        domain: str,
        inputs: Iterable[str],
        attributes: Mapping[str, Any],
        numOutputs: int = 1,
        name: str = "",
    ) -> list[str]:
        """A node of an operator, whose function ``popsr.compat.custom_op`` registers before a session is made."""
        node = self._onnx.helper.make_node(
            read_text("customOp: opName", opName), [], [], domain=read_text("customOp: domain", domain)
        )
        for key, value in read_mapping("customOp", "attributes", attributes).items():
            node.attribute.append(attribute_of("customOp", read_text("customOp: attributes", key), value))
        ids = read_items("customOp", "inputs", inputs, kind="ids")
        many = read_int("customOp: numOutputs", numOutputs, 1)
        version = read_int("customOp: opVersion", opVersion, 1)
        if self._import(domain, version) != version:
            self._mark(node, OPSET, version)
        return self._append("customOp", node, ids, many, debug_name("customOp", name))

    def _add(
        self, signature: Signature, args: Sequence[Any], named: Mapping[str, Any], domain: str, version: int
    ) -> Any:
        """Add the node of a call of an op's method; its only id, or all."""
        inputs, outputs, attributes, name = signature.bind(args, named)
        if domain == "":
            domain, version = self._of_version(signature.op_type, version)
        node = self._onnx.helper.make_node(signature.op_type, [], [], domain=domain)
        node.attribute.extend(attributes)
        made = self._append(signature.where, node, inputs, outputs, name)
        self._import(domain, version)
        return made[0] if len(made) == 1 and signature.outputs == (1, 1) else made

    def _of_version(self, op_type: str, version: int) -> tuple[str, int]:
        """Domain and version of an op of ONNX: of the model's version, or one that no tool misreads as that."""
        opset = self._root._opset or version
        since = (since_of(self._onnx, op_type, each) for each in (opset, version))
        return ("", opset) if next(since) == next(since) else (f"{_model.OF_VERSION}{version}", 1)

    def _append(self, where: str, node: Any, inputs: Iterable[Any], outputs: int, name: str) -> list[str]:
        for id_ in inputs:
            if id_ and not self._knows(id_):
                raise UnknownNameError(
                    f"{where}: no such tensor, got {shown(id_)}, expected an id that this builder returned"
                )
        prefix = self.getNameScope(name)
        stem = f"{prefix}/{node.op_type}" if prefix else node.op_type
        node.input.extend(inputs)
        node.output.extend(self._unique(f"{stem}:{i}") for i in range(outputs))
        node.name = prefix
        for key, value in self._scopes.items():
            self._mark(node, key, value)
        self._graph.node.append(node)
        self._register(self._graph.node[-1])
        return list(node.output)

    def _register(self, node: Any) -> None:
        self._nodes.update((name, node) for name in node.output if name)
        self._known.update((name, None) for name in node.output if name)
        self._places.update(dict.fromkeys(node.output, len(self._places)))

    def _forget(self) -> None:
        self._known.update(dict.fromkeys(self._nodes))

    def _import(self, domain: str, version: int) -> int:
        """The version of a domain: this one if the model has none yet."""
        model = self._root._model
        if domain == "":
            self._root._opset = self._root._opset or version
        for each in model.opset_import:
            if each.domain == domain:
                return int(each.version)
        model.opset_import.add(domain=domain, version=version)
        return version

    # Inputs, initializers, outputs

    def setGraphName(self, name: str) -> None:
        """Name the graph."""
        self._graph.name = read_text("setGraphName: name", name)

    def addInputTensor(self, *args: Any, **named: Any) -> str:
        """An input: ``(TensorInfo or dtype and shape, InputSettings, debugContext)``, all but the first optional.

        Raises:
            ArgumentTypeError: another argument.
        """
        where = "addInputTensor"
        given = [*args, *named.values()]
        info = _taken(given, TensorInfo)
        if info is None:
            if len(given) < 2:
                raise ArgumentTypeError(
                    f"{where}: no shape, got {shown(given)}, expected a TensorInfo, or dtype and shape"
                )
            info = TensorInfo(given.pop(0), given.pop(0))
        settings = _taken(given, InputSettings) or InputSettings()
        if len(given) > 1:
            raise ArgumentTypeError(f"{where}: too many arguments, got {shown(given)}, expected a name alone")
        id_ = self._named(where, given[0] if given else "", "input")
        made = self._onnx.helper.make_tensor_value_info(id_, code_of(where, info.dataType()), info.shape())
        if settings.mode is not None:
            made.metadata_props.add(key=STREAM_MODE, value=settings.mode.name)
        self._graph.input.append(made)
        self._order.append(id_)
        self._known[id_] = info
        return id_

    def addUntypedInputTensor(self, debugContext: str = "") -> str:
        """An input whose type and shape a session finds in its ``inputShapeInfo``, or a graph takes from its caller."""
        id_ = self._named("addUntypedInputTensor", debugContext, "input")
        self._graph.input.add(name=id_)
        self._order.append(id_)
        self._known[id_] = None
        return id_

    def addInputTensorFromParentGraph(self, tensorId: str) -> str:
        """Let a subgraph read a tensor of the graph around it."""
        parent = self._parent
        if parent is None or not parent._knows(
            read_text("addInputTensorFromParentGraph: tensorId", tensorId)
        ):
            raise UnknownNameError(
                f"addInputTensorFromParentGraph: no such tensor, got {shown(tensorId)}, expected an id of the builder "
                "that made this one"
            )
        self._order.append(tensorId)
        return tensorId

    def addInitializedInputTensor(self, initVal: Any, *settings: Any, **named: Any) -> str:
        """A variable with its initial value, which has a row for each group of its ``VariableSettings``.

        Args:
            initVal: the array.
            *settings: ``VariableSettings``, then ``debugContext``; both optional.
            **named: the same by name.
        Raises:
            ArgumentTypeError: not an array, or another argument.
            DTypeError: ONNX has no such element type.
        """
        where = "addInitializedInputTensor"
        given = [*settings, *named.values()]
        groups = _taken(given, VariableSettings)
        if not is_a(initVal, (np.ndarray, np.generic)) or len(given) > 1:
            got = shown(given) if is_a(initVal, np.ndarray) else shown(initVal)
            raise ArgumentTypeError(
                f"{where}: wrong arguments, got {got}, expected an array, VariableSettings and a name"
            )
        value = np.ascontiguousarray(initVal).reshape(np.shape(initVal))
        id_ = self._named(where, given[0] if given else "", "init_input")
        info = TensorInfo(value.dtype, value.shape)
        made = self._onnx.TensorProto(name=id_, dims=value.shape, data_type=code_of(where, info.dataType()))
        made.raw_data = value.tobytes()
        if groups is not None:
            set_entries(made, settings_text_of(groups))
        self._graph.initializer.append(made)
        self._initializers[id_] = self._graph.initializer[-1]
        self._known[id_] = info
        return id_

    addInitializedInput = addInitializedInputTensor

    def addOutputTensor(self, outputName: str) -> None:
        """Make a tensor an output of the graph."""
        self._require("addOutputTensor", outputName)
        if outputName not in self.getOutputTensorIds():
            self._graph.output.add(name=outputName)

    # Graphs

    def createSubgraphBuilder(self) -> Builder:
        """A builder of a graph for ``logical_if``, ``loop``, ``scan`` and ``call``."""
        made = Builder()
        made._parent, made._graph.name = self, f"{self._graph.name}_sub{len(self._graph.node)}"
        return made

    _createSubgraphBuilder = createSubgraphBuilder

    def _subgraph(self) -> Any:
        graph = self._onnx.GraphProto()
        graph.CopyFrom(self._graph)
        self._describe_outputs(graph)
        return graph

    def _called_with(self, count: int) -> Any:
        """The graph of a call with so many inputs: its own, or these and the tensors of the graph around it."""
        parent, order = self._parent, dict.fromkeys(self._order)
        if parent is None or not self._captured() or count != len(order):
            return self
        made, own = _Graph(self._subgraph()), {each.name: each for each in self._graph.input}
        made.graph.ClearField("input")
        made.graph.input.extend(own[name] if name in own else parent._described(name) for name in order)
        return made

    def _knows(self, name: Any) -> bool:
        return name in self._known or (self._parent is not None and self._parent._knows(name))

    def _named(self, where: str, context: Any, default: str) -> str:
        """A new id in the current scope, of the name that a call was given."""
        return self._unique(self.getNameScope(debug_name(where, context) or default))

    def _unique(self, name: str) -> str:
        """The name, or with the first number that makes it new; names are never free again."""
        root = self._root
        found, i = name, root._next.get(name, 0)
        if i:
            found = f"{name}/{i}"
        while found in root._names or found in root._known:
            i += 1
            found = f"{name}/{i}"
        root._next[name] = i
        root._names.add(found)
        return found

    @contextlib.contextmanager
    def nameScope(self, name: str) -> Iterator[None]:
        """A prefix for names of nodes and ids that are added inside."""
        before = self._prefix
        self._prefix = self.getNameScope(read_text("nameScope: name", name))
        try:
            yield
        finally:
            self._prefix = before

    def getNameScope(self, name: str = "") -> str:
        """The current prefix, with a name."""
        return "/".join(part for part in (self._prefix, read_text("getNameScope: name", name)) if part)

    # The model

    def embedReplicationFactor(self, replicationFactor: int) -> None:
        """Let the model say how many replicas there are; outer dimensions of initial values are then groups."""
        replicas = read_int("embedReplicationFactor: replicationFactor", replicationFactor, 1)
        for each in self._graph.initializer:
            settings_from(entries_of(each)).shapeOnReplica(tuple(each.dims), replicas, each.name)
        set_entries(self._model, write_factor(replicas))
        self._forget()

    def getModelProto(self) -> bytes:
        """The model as bytes."""
        model = self._complete()
        self._describe_outputs(model.graph)
        return bytes(model.SerializeToString())

    def saveModelProto(self, filename: str | os.PathLike[str]) -> None:
        """Write the model to a file."""
        path = read_path("saveModelProto", filename)
        with file_errors("saveModelProto", "write", path):
            path.write_bytes(self.getModelProto())

    def saveInitializersExternally(self, ids: Iterable[str], filename: str | os.PathLike[str]) -> None:
        """Write initial values to a file of their own, to which the model then refers."""
        where, path = "saveInitializersExternally", read_path("saveInitializersExternally", filename)
        by_name = self._initializers
        wanted = [read_text(f"{where}: ids", each) for each in read_items(where, "ids", ids, kind="ids")]
        require_known(f"{where}: not an initializer", wanted, by_name)
        require_new(where, [by_name[id_] for id_ in wanted])
        arrays = (self._onnx.numpy_helper.to_array(by_name[id_]) for id_ in wanted)
        with file_errors(where, "write", path):
            places = write_data(path, arrays)
        for each, place in zip((by_name[id_] for id_ in wanted), places, strict=True):
            empty = self._onnx.TensorProto(
                name=each.name, dims=each.dims, data_type=each.data_type, metadata_props=each.metadata_props
            )
            each.CopyFrom(empty)
            each.data_location = self._onnx.TensorProto.EXTERNAL
            each.external_data.extend(metadata(self._onnx, place))

    def getInputTensorIds(self) -> list[str]:
        """Ids of the inputs, and of the initializers."""
        return [each.name for each in (*self._graph.input, *self._graph.initializer)]

    def getOutputTensorIds(self) -> list[str]:
        """Ids of the outputs."""
        return [each.name for each in self._graph.output]

    def getValueTensorIds(self) -> list[str]:
        """Ids of the results of nodes that are not outputs."""
        return [name for name in self._nodes if name not in self.getOutputTensorIds()]

    def getTrainableTensorIds(self) -> list[str]:
        """Ids of the initializers."""
        return list(self._initializers)

    def isInitializer(self, id: str) -> bool:
        """True if an id is of an initializer."""
        self._require("isInitializer", id)
        return id in self._initializers


class _Graph:
    """A graph as an attribute."""

    def __init__(self, graph: Any) -> None:
        """``graph``: its message."""
        self.graph = graph

    def _subgraph(self) -> Any:
        return self.graph


def _taken(given: list[Any], kind: type) -> Any:
    """The first argument if it is of this kind; it is taken from the list."""
    return given.pop(0) if given and is_a(given[0], kind) else None
