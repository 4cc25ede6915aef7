"""A model of ONNX with its initializers as inputs, read by ``popsr.bridge.onnx.load``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from popsr._host.arguments import is_a, read_path, require_known
from popsr._popart.types import TensorInfo
from popsr._text.shown import shown
from popsr.bridge.onnx import OnnxModel, load
from popsr.compat.popart._graphcore_ops import DOMAIN
from popsr.errors import (
    ArgumentTypeError,
    CheckpointError,
    ReplicaError,
    UnsupportedOpsError,
)
from popsr.io import load_onnx
from popsr.io._onnx_format import entries_of, require_onnx
from popsr.io._settings import factor_of, settings_from
from popsr.replicas import VariableSettings

__all__ = ["SEED", "Weight", "describe", "parse_model", "read_graph", "reads", "weights_of"]

Array = np.ndarray[Any, Any]
SEED = "__seed"
"""Input of models with dropout: random bits for each micro batch and replica."""
_RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
_EFFECTS = ("CopyVarUpdate", "PrintTensor", "Abort")


class Weight(NamedTuple):
    """An initializer: its rows for the groups, and their settings."""

    name: str
    rows: Array
    settings: VariableSettings

    def shape(self, replicas: int) -> tuple[int, ...]:
        """Shape on a replica."""
        return tuple(self.settings.shapeOnReplica(self.rows.shape, replicas, self.name))


def parse_model(where: str, model: Any) -> tuple[Any, dict[str, Array]]:
    """A model from bytes, or from the file of that name, and its initializers.

    Raises:
        ArgumentTypeError: it is neither.
        CheckpointError: it is not a model.
    """
    onnx = require_onnx(where)
    arrays: dict[str, Array] = {}
    if is_a(model, (str, os.PathLike)):
        path = read_path(where, model)
        arrays, model = dict(load_onnx(path).items()), path.read_bytes()
    if not is_a(model, bytes):
        raise ArgumentTypeError(
            f"{where}: fnModel is not a model, got {shown(model)}, expected its bytes or file"
        )
    try:
        proto = onnx.ModelProto.FromString(model)
    except Exception:
        proto = onnx.ModelProto()
    if not proto.HasField("graph"):
        raise CheckpointError(
            f"{where}: fnModel is not a model of ONNX, got {len(model)} bytes, expected a model"
        )
    for each in proto.graph.initializer:
        if each.name not in arrays:
            arrays[each.name] = _array(where, onnx, each)
    return proto, arrays


def _array(where: str, onnx: Any, initializer: Any) -> Array:
    name = initializer.name
    if initializer.data_location == onnx.TensorProto.EXTERNAL:
        raise CheckpointError(
            f"{where}: data of {shown(name)} in another file, got bytes, expected the model's file name"
        )
    try:
        return np.asarray(onnx.numpy_helper.to_array(initializer))
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(
            f"{where}: initializer contradicts itself, got {shown(name)}: {error!s:.100}"
        ) from None


def weights_of(where: str, proto: Any, arrays: Mapping[str, Array], replicas: int) -> dict[str, Weight]:
    """The initializers of a model by name.

    Raises:
        ReplicaError: the model says that it was made for another number of replicas.
    """
    embedded = factor_of(entries_of(proto))
    if embedded not in (None, replicas):
        raise ReplicaError(
            f"{where}: the model was made for {embedded} replicas, got {replicas}, expected replicatedGraphCount "
            f"{embedded}"
        )
    return {
        each.name: Weight(each.name, arrays[each.name], settings_from(entries_of(each)))
        for each in proto.graph.initializer
    }


def read_graph(
    where: str,
    proto: Any,
    weights: Mapping[str, Weight],
    outputs: Iterable[str],
    replicas: int,
    shapes: Mapping[str, TensorInfo],
    training: bool,
) -> tuple[OnnxModel, dict[str, Array]]:
    """The graph of the tensors that are asked for, and of effects.

    Weights are inputs of it, except integers whose values ops need when the model is read.

    Returns:
        The model that was read, and the values that ops needed, by name.
    Raises:
        UnknownNameError: no node makes a tensor that is asked for.
        UnsupportedOpsError: nodes without a counterpart.
    """
    model = type(proto)()
    model.CopyFrom(proto)
    _as_inputs(model, weights, replicas, shapes)
    _choose_outputs(where, model, list(outputs))
    _rename(model, training)
    constants: dict[str, Array] = {}
    while True:
        try:
            options: Any = {"weights": "constants", "streams": False, "unroll": False}
            return load(model, replicas=replicas, values=constants, **options), constants
        except UnsupportedOpsError as error:
            needed = {name for name in getattr(error, "needed", ()) if name in weights} - constants.keys()
            if not needed:
                raise
            constants.update((name, weights[name].rows) for name in needed)


def describe(where: str, proto: Any, name: str) -> dict[str, TensorInfo]:
    """Element types and shapes of a tensor of a model that is not complete, and of those that it depends on.

    Raises:
        Error: as ``read_graph``, or the tensor is a sequence.
    """
    onnx, replicas = require_onnx(where), factor_of(entries_of(proto))
    weights = {}
    for each in proto.graph.initializer:
        settings = VariableSettings() if replicas is None else settings_from(entries_of(each))
        weights[each.name] = Weight(each.name, _array(where, onnx, each), settings)
    model = read_graph(where, proto, weights, [name], replicas or 1, {}, False)[0]
    return {n: TensorInfo(t.dtype, t.shape) for n, t in {**model.tensors, **model.outputs}.items()}


def _as_inputs(
    model: Any, weights: Mapping[str, Weight], replicas: int, shapes: Mapping[str, TensorInfo]
) -> None:
    """Put inputs in place of initializers, with the shape on a replica, and give untyped inputs a type."""
    onnx, graph = require_onnx("Session"), model.graph
    free = [each for each in graph.input if each.name not in weights]
    codes = {each.name: each.data_type for each in graph.initializer}
    del graph.input[:], graph.initializer[:]
    make = onnx.helper.make_tensor_value_info
    for each in free:
        info = shapes.get(each.name)
        if info is not None:
            code = onnx.helper.np_dtype_to_tensor_dtype(info.dataType().dtype.as_ml_dtypes())
            each = make(each.name, code, info.shape())
        graph.input.append(each)
    for weight in weights.values():
        graph.input.append(make(weight.name, codes[weight.name], weight.shape(replicas)))


def _choose_outputs(where: str, model: Any, outputs: list[str]) -> None:
    """Make these the outputs, with what updates variables, and drop nodes that nothing needs."""
    graph, makers = model.graph, {name: node for node in model.graph.node for name in node.output if name}
    known = {*makers, *(each.name for each in graph.input)}
    require_known(f"{where}: no such tensor in the main graph", outputs, known)
    effects = [node for node in graph.node if node.domain == DOMAIN and node.op_type in _EFFECTS]
    wanted = outputs + [node.output[0] for node in effects if node.op_type == "CopyVarUpdate"]
    todo = [name for node in effects for name in reads(node)] + wanted
    kept, seen = {id(node) for node in effects}, set[str]()
    while todo:
        name = todo.pop()
        if name not in seen and name in makers:
            kept.add(id(makers[name]))
            todo += reads(makers[name])
        seen.add(name)
    make = require_onnx(where).ValueInfoProto
    rest = {
        "node": [node for node in graph.node if id(node) in kept],
        "input": [each for each in graph.input if each.name in seen],
        "output": [make(name=name) for name in dict.fromkeys(wanted)],
    }
    parts = type(graph)(**rest)  # a copy: what is taken away is no longer valid
    for field in rest:
        graph.ClearField(field)
    graph.MergeFrom(parts)


def reads(node: Any) -> list[str]:
    """Names that a node reads, also in graphs of its own."""
    names = [name for name in node.input if name]
    for graph in _graphs(node):
        names += [name for inner in graph.node for name in reads(inner)]
        names += [each.name for each in graph.output]
    return names


def _graphs(node: Any) -> Iterator[Any]:
    for each in node.attribute:
        if each.HasField("g"):
            yield each.g
        yield from each.graphs


def _rename(model: Any, training: bool) -> None:
    """Let rules of ai.graphcore read nodes whose meaning depends on the session.

    Random numbers, and dropout in training, read a seed, which the session feeds; BatchNormalization of versions before
    14 is in training mode where it has several results.
    """
    onnx, seeds, renamed = require_onnx("Session"), 0, 0
    version = next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 14)
    norms, dropouts = ("BatchNormalization",) * (version < 14), ("Dropout",) * (training and version < 12)
    todo = [model.graph]
    while todo:
        for node in todo.pop().node:
            todo += _graphs(node)
            if node.domain in ("", "ai.onnx") and node.op_type in (*norms, *dropouts, *_RANDOM):
                node.domain, renamed = DOMAIN, renamed + 1
            is_dropout = training and node.op_type in ("Dropout", "ShapedDropout")
            if node.domain == DOMAIN and (is_dropout or node.op_type in _RANDOM):
                node.input.append(SEED)
                node.attribute.append(onnx.helper.make_attribute("number", seeds))
                seeds += 1
    if seeds:
        model.graph.input.append(onnx.helper.make_tensor_value_info(SEED, onnx.TensorProto.UINT32, [2]))
    if renamed and all(each.domain != DOMAIN for each in model.opset_import):
        model.opset_import.add(domain=DOMAIN, version=1)
