"""Types and shapes of a Builder's tensors, read from the part of its model that they depend on."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Self

from popsr._support.host.arguments import read_text, require_known
from popsr._support.lazy import LazyModule
from popsr.compat._objects.types import DataType, TensorInfo
from popsr.compat.popart._recording.node_attributes import NodeAttributes
from popsr.compat.popart._recording.onnx_ops import DEFAULT_OPSET
from popsr.errors import DTypeError, Error
from popsr.io._onnx.format import ONNX_TYPES, entries_of, require_onnx
from popsr.io._settings import factor_of, settings_from

if TYPE_CHECKING:
    from popsr.compat.popart import _model
else:
    _model = LazyModule("popsr.compat.popart._model")

__all__ = ["Described", "code_of", "info_of", "since_of"]


class Described(NodeAttributes):
    """The model of a Builder, and what is known of its tensors.

    Attributes:
        _model: its message, of the outermost builder.
        _graph: the builder's graph in it, or of its own.
        _parent: the builder around it.
        _opset: the version of ONNX, of the outermost builder.
        _known: types and shapes, where they are known, by id.
        _initializers: initial values by id.
        _places: places of nodes in the graph, by output.
        _order: inputs, and tensors of the graph around, as they were added.
    """

    _onnx: Any
    _model: Any
    _graph: Any
    _parent: Self | None
    _opset: int | None
    _known: dict[str, TensorInfo | None]
    _initializers: dict[str, Any]
    _places: dict[str, int]
    _order: list[str]

    @property
    def _root(self) -> Self:
        return self if self._parent is None else self._parent._root

    def _captured(self) -> list[str]:
        """Ids of the tensors of the graph around it that it reads."""
        own = {each.name for each in self._graph.input}
        return [name for name in dict.fromkeys(self._order) if name not in own]

    def _require(self, where: str, name: Any) -> None:
        require_known(f"{where}: no such tensor", [read_text(f"{where}: id", name)], self._known)

    def _complete(self) -> Any:
        """A model of this graph alone, with inputs for tensors of the graphs around it."""
        model = self._onnx.ModelProto()
        model.CopyFrom(self._root._model)
        model.graph.CopyFrom(self._graph)
        for name in self._captured():
            assert self._parent is not None
            model.graph.input.append(self._parent._described(name))
        self._add_default_opset(model)
        return model

    def _add_default_opset(self, model: Any) -> None:
        if all(each.domain for each in model.opset_import):
            model.opset_import.add(domain="", version=self._root._opset or DEFAULT_OPSET)

    def _described(self, name: str) -> Any:
        """Name, element type and shape of a tensor as ONNX has them."""
        if name not in self._known and self._parent is not None:
            return self._parent._described(name)
        info = self._info("Builder", name)
        return self._onnx.helper.make_tensor_value_info(
            name, code_of("Builder", info.dataType()), info.shape()
        )

    def _describe_outputs(self, graph: Any) -> None:
        """Element types and shapes of outputs, which ONNX asks for, where they are known."""
        for each in graph.output:
            with contextlib.suppress(Error):
                each.CopyFrom(self._described(each.name))

    def getTensorShape(self, id: str) -> list[int]:
        """Shape of a tensor; initializers have their dimension of groups until ``embedReplicationFactor``."""
        return self._info("getTensorShape", id).shape()

    def getTensorDtypeString(self, id: str) -> str:
        """Element type of a tensor, as "float32"."""
        return self._info("getTensorDtypeString", id).data_type_lcase()

    def _info(self, where: str, id_: str) -> TensorInfo:
        """Element type and shape of a tensor: on a replica where the number of replicas is known."""
        self._require(where, id_)
        if self._known[id_] is None:
            for name, found in self._describe(where, id_).items():
                if self._known.get(name, found) is None:
                    self._known[name] = found
        info, replicas = self._known[id_], factor_of(entries_of(self._model))
        assert info is not None
        if replicas is None or id_ not in self._initializers:
            return info
        settings = settings_from(entries_of(self._initializers[id_]))
        return TensorInfo(info.dataType(), settings.shapeOnReplica(info.shape(), replicas, id_))

    def _describe(self, where: str, id_: str) -> dict[str, TensorInfo]:
        """Types and shapes of the tensors that one depends on.

        The whole graph is read where a part is not enough: where an op needs values that the part does not have.
        """
        if self._parent is None:
            with contextlib.suppress(Error):
                return _model.describe(where, self._part(id_), id_)
        return _model.describe(where, self._complete(), id_)

    def _part(self, id_: str) -> Any:
        """A model of the nodes that a tensor depends on, from floats whose shapes are known."""
        model = self._onnx.ModelProto(metadata_props=self._model.metadata_props)
        model.ir_version, model.graph.name = self._model.ir_version, self._graph.name
        model.opset_import.extend(self._model.opset_import)
        model.functions.extend(self._model.functions)
        self._add_default_opset(model)
        graph, seen, kept, todo = model.graph, set[str](), dict[int, Any](), [id_]
        while todo:
            name = todo.pop()
            if name in seen or name not in self._known:  # a tensor of a graph inside
                continue
            seen.add(name)
            info, node = self._known[name], self._nodes.get(name)
            if name in self._initializers:
                graph.initializer.append(self._initializers[name])
            elif info is not None and (node is None or info.dataType().dtype.is_floating_point):
                graph.input.append(self._described(name))
            elif node is None:
                graph.input.add(name=name)
            else:
                kept[self._places[name]] = node
                todo += _model.reads(node)
        graph.node.extend(kept[place] for place in sorted(kept))
        return model


def since_of(onnx: Any, op_type: str, version: int) -> int | None:
    """The version of ONNX that an op is from, in a version of ONNX."""
    if not onnx.defs.has(op_type, version, ""):
        return None
    return int(onnx.defs.get_schema(op_type, version, "").since_version)


def info_of(proto: Any) -> TensorInfo | None:
    """Element type and shape of an initializer, or of an input that has them."""
    if hasattr(proto, "dims"):
        return TensorInfo(_name(proto.data_type), list(proto.dims))
    tensor = proto.type.tensor_type
    if not tensor.HasField("shape") or any(not dim.HasField("dim_value") for dim in tensor.shape.dim):
        return None
    return TensorInfo(_name(tensor.elem_type), [dim.dim_value for dim in tensor.shape.dim])


def _name(code: int) -> str:
    return str(require_onnx("Builder").TensorProto.DataType.Name(code))


def code_of(where: str, kind: DataType) -> int:
    """ONNX's number of an element type."""
    names = {"FLOAT8_143": "FLOAT8E4M3FNUZ", "FLOAT8_152": "FLOAT8E5M2FNUZ"}
    name = names.get(kind.name, kind.name)
    if name not in ONNX_TYPES:
        raise DTypeError(
            f"{where}: ONNX has no tensors of this type, got {kind.name}, expected one of numbers or BOOL"
        )
    return int(require_onnx(where).TensorProto.DataType.Value(name))
