"""``popart.GraphTransformer``: changes of a model of ONNX before a session reads it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from popsr._support.host.arguments import read_bool, read_items, read_text, require_known
from popsr._support.lazy import LazyModule
from popsr._support.text.shown import shown
from popsr.bridge.onnx._places import graphs_of
from popsr.compat.popart._builder import Builder
from popsr.errors import AttributeValueError
from popsr.io._onnx.format import ONNX_TYPES, entries_of, require_onnx, set_entries

if TYPE_CHECKING:
    from popsr.compat.popart import _model
else:  # onnx is read when it is needed
    _model = LazyModule("popsr.compat.popart._model")

__all__ = ["GraphTransformer"]


class GraphTransformer:
    """A model whose element types and weights can be changed; ``getModelProto`` returns the changed one.

    Args:
        modelProtoOrFilename: bytes of a model, or its file.
    """

    def __init__(self, modelProtoOrFilename: Any) -> None:
        """Read the model.

        Raises:
            ArgumentTypeError: neither bytes nor a file.
            CheckpointError: it is not a model.
        """
        self._onnx = require_onnx("GraphTransformer")
        self._model, _ = _model.parse_model("GraphTransformer", modelProtoOrFilename)

    def getModelProto(self) -> bytes:
        """The model as bytes."""
        return bytes(self._model.SerializeToString())

    def convertINT64ToINT32(self, clip: bool = False) -> None:
        """Make tensors of INT64 ones of INT32.

        Args:
            clip: numbers beyond 32 bits become the nearest that has them.
        Raises:
            AttributeValueError: there are such numbers, without ``clip``.
        """
        self._convert("convertINT64ToINT32", "INT64", "INT32", read_bool("convertINT64ToINT32: clip", clip))

    def convertInitializersToConstants(self, ids: Iterable[str]) -> None:
        """Make initializers constants, which are not trained.

        Raises:
            UnknownNameError: one is not an initializer.
        """
        where, graph = "convertInitializersToConstants", self._model.graph
        by_name = {each.name: each for each in graph.initializer}
        wanted = [read_text(f"{where}: ids", each) for each in read_items(where, "ids", ids, kind="ids")]
        require_known(f"{where}: not an initializer", wanted, by_name)
        make = self._onnx.helper.make_node
        nodes = [make("Constant", [], [name], value=by_name[name]) for name in dict.fromkeys(wanted)]
        rest = [each for each in graph.initializer if each.name not in wanted]
        inputs = [each for each in graph.input if each.name not in wanted]
        _model.set_fields(graph, {"node": [*nodes, *graph.node], "initializer": rest, "input": inputs})

    def convertAllFixedPointInitializersToConstants(self) -> None:
        """Make initializers of integers constants."""
        kinds = self._onnx.TensorProto.DataType
        whole = [
            each.name
            for each in self._model.graph.initializer
            if (kind := ONNX_TYPES.get(kinds.Name(each.data_type))) is not None and kind.kind in "iu"
        ]
        self.convertInitializersToConstants(whole)

    def removeUnusedInputs(self) -> None:
        """Remove inputs and initializers that no node reads and that are no outputs."""
        graph = self._model.graph
        used = {name for node in graph.node for name in _model.reads(node)} | {
            each.name for each in graph.output
        }
        kept = {
            field: [each for each in getattr(graph, field) if each.name in used]
            for field in ("input", "initializer")
        }
        _model.set_fields(graph, kept)

    def prepareNodesForTraining(self) -> None:
        """Give batch normalisations all their results, with which they train."""
        for graph in self._graphs():
            for node in graph.node:
                if node.op_type == "BatchNormalization" and node.domain in ("", "ai.onnx"):
                    node.output.extend(f"{node.output[0]}/{i}" for i in range(len(node.output), 5))

    def saveInitializersExternally(self, ids: Iterable[str], filename: str | os.PathLike[str]) -> None:
        """As ``Builder.saveInitializersExternally``."""
        builder = Builder(self.getModelProto())
        builder.saveInitializersExternally(ids, filename)
        self._model = type(self._model).FromString(builder.getModelProto())

    if TYPE_CHECKING:  # the conversions below

        def __getattr__(self, name: str) -> Callable[[], None]: ...

    def _graphs(self) -> Iterator[Any]:
        todo = [self._model.graph]
        while todo:
            graph = todo.pop()
            yield graph
            todo += [inner for node in graph.node for inner in graphs_of(node)]

    def _convert(self, where: str, before: str, after: str, clip: bool = False) -> None:
        """Let all tensors of an element type have another: inputs, initializers, constants and results of casts."""
        kinds = self._onnx.TensorProto.DataType
        old, new = kinds.Value(before), kinds.Value(after)

        def tensor(t: Any) -> None:
            if t.data_type == old:
                entries = entries_of(t)
                t.CopyFrom(self._onnx.numpy_helper.from_array(_converted(where, t, after, clip), t.name))
                set_entries(t, entries)

        for graph in self._graphs():
            for each in graph.initializer:
                tensor(each)
            for each in (*graph.input, *graph.output, *graph.value_info):
                if each.type.tensor_type.elem_type == old:
                    each.type.tensor_type.elem_type = new
            for attribute in (each for node in graph.node for each in node.attribute):
                if attribute.HasField("t"):
                    tensor(attribute.t)
                if attribute.name in ("to", "dtype", "data_type") and attribute.i == old:
                    attribute.i = new


def _converted(where: str, t: Any, after: str, clip: bool) -> Any:
    array = require_onnx(where).numpy_helper.to_array(t)
    kind = ONNX_TYPES[after]
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        clipped = np.clip(array, limits.min, limits.max)
        if not clip and (clipped != array).any():
            raise AttributeValueError(
                f"{where}: numbers beyond {after}, got them in {shown(t.name)}, expected clip=True or smaller ones"
            )
        array = clipped
    with np.errstate(over="ignore"):
        return np.asarray(array).astype(kind)


def _conversion(before: str, after: str) -> Callable[[GraphTransformer], None]:
    def convert(self: GraphTransformer) -> None:
        self._convert(convert.__name__, before, after)

    convert.__doc__ = f"Make tensors of {before} ones of {after}."
    return convert


# Conversions whose names say all.
for _name, _before, _after in (
    ("convertFloatsToHalfs", "FLOAT", "FLOAT16"),
    ("convertDoublesToFloats", "DOUBLE", "FLOAT"),
    ("convertDoublesToHalfs", "DOUBLE", "FLOAT16"),
    ("convertBFloats16ToFloat32", "BFLOAT16", "FLOAT"),
    ("convertINT8ToINT32", "INT8", "INT32"),
    ("convertINT16ToINT32", "INT16", "INT32"),
    ("convertUINT8ToINT32", "UINT8", "INT32"),
    ("convertUINT16ToINT32", "UINT16", "INT32"),
):
    _function = _conversion(_before, _after)
    _function.__name__, _function.__qualname__ = _name, f"GraphTransformer.{_name}"
    setattr(GraphTransformer, _name, _function)
