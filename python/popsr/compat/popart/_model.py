"""A model of ONNX with its initializers as inputs, read by ``popsr.bridge.onnx.load``."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import is_a, read_path, require_known
from popsr._support.text.shown import shown
from popsr.bridge.onnx import OnnxModel, load
from popsr.bridge.onnx._node import Node, cast
from popsr.bridge.onnx._places import OPSET, graphs_of, opset_of
from popsr.bridge.onnx._rules import OTHERS, RULES, Rule
from popsr.compat._objects.types import TensorInfo
from popsr.compat.popart._custom import hints
from popsr.compat.popart._external import is_elsewhere, read_elsewhere
from popsr.compat.popart._recording.graphcore_ops import DOMAIN
from popsr.errors import (
    ArgumentTypeError,
    CheckpointError,
    ReplicaError,
    UnsupportedError,
    UnsupportedOpsError,
)
from popsr.io import load_onnx
from popsr.io._onnx.format import ONNX_TYPES, entries_of, require_onnx, set_entries
from popsr.io._settings import factor_of, settings_from
from popsr.replicas import VariableSettings

__all__ = [
    "OF_VERSION",
    "SEED",
    "Weight",
    "can_read",
    "describe",
    "initializer_of",
    "parse_model",
    "read_graph",
    "reads",
    "set_fields",
    "weights_of",
]

Array = np.ndarray[Any, Any]
SEED = "__seed"
"""Input of models with dropout: random bits for each micro batch and replica."""
OF_VERSION = "popart.opset"
"""Beginning of the domains of ops that are of another version of ONNX than the model, so that no tool misreads them."""
_PASS_SEED = ("popart.session", "PassSeed")  # an op that is in no model of a user, as a domain and an op type
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
    if not arrays:
        arrays.update(read_elsewhere(where, proto))
    for each in proto.graph.initializer:
        if each.name not in arrays:
            arrays[each.name] = _array(where, onnx, each)
    return proto, arrays


def _array(where: str, onnx: Any, initializer: Any) -> Array:
    name = initializer.name
    try:
        return np.asarray(onnx.numpy_helper.to_array(initializer))
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(
            f"{where}: initializer contradicts itself, got {shown(name)}: {error!s:.100}"
        ) from None


def initializer_of(name: str, rows: Array) -> Any:
    """An initializer; float32 is in ``float_data``, where programs look for it, unless NaNs would change their bits."""
    onnx = require_onnx("modelToHost")
    if rows.dtype != np.float32 or np.isnan(rows).any():
        return onnx.numpy_helper.from_array(rows, name)
    made = onnx.TensorProto(name=name, dims=rows.shape, data_type=onnx.TensorProto.FLOAT)
    made.float_data.extend(rows.reshape(-1))
    return made


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
    apart: Iterable[str] = (),
) -> tuple[OnnxModel, dict[str, Array]]:
    """The graph of the tensors that are asked for, and of effects.

    Weights are inputs of it, except integers whose values ops need when the model is read. Results of nodes that are
    ``apart`` are tensors of their own, also where an op returns its operand or a constant.

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
    _copy_results(model, set(apart))
    constants: dict[str, Array] = {}
    while True:
        try:
            options: Any = {"weights": "constants", "streams": False, "unroll": training}
            return load(model, replicas=replicas, values=constants, **options), constants
        except UnsupportedOpsError as error:
            needed = {name for name in getattr(error, "needed", ()) if name in weights} - constants.keys()
            if not needed:
                for hint in hints(model):
                    error.add_note(hint)
                raise
            constants.update((name, weights[name].rows) for name in needed)


def can_read(domain: str, op_type: str, version: int) -> bool:
    """True if sessions have a rule for an op, or ONNX gives it as a function of others."""
    if (domain, op_type) in RULES or (DOMAIN, op_type) in RULES:
        return True
    defs = require_onnx("Session").defs
    if not defs.has(op_type, version, domain):
        return False
    schema = defs.get_schema(op_type, version, domain)
    return bool(schema.has_function or schema.has_context_dependent_function)


def describe(where: str, proto: Any, name: str) -> dict[str, TensorInfo]:
    """Element types and shapes of a tensor of a model that is not complete, and of those that it depends on.

    Raises:
        Error: as ``read_graph``, or the tensor is a sequence.
    """
    onnx, replicas = require_onnx(where), factor_of(entries_of(proto))
    weights, kinds = {}, onnx.TensorProto.DataType
    arrays: Mapping[str, Array] = {}
    for each in proto.graph.initializer:
        kind = ONNX_TYPES[kinds.Name(each.data_type)]
        if not is_elsewhere(each):
            rows = _array(where, onnx, each)
        elif kind.kind not in "iu":  # the value is not needed
            rows = np.broadcast_to(np.zeros((), kind), tuple(each.dims))
        else:
            arrays = arrays or read_elsewhere(where, proto)
            rows = arrays[each.name]
        settings = VariableSettings() if replicas is None else settings_from(entries_of(each))
        weights[each.name] = Weight(each.name, rows, settings)
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
    set_fields(graph, rest)


def set_fields(graph: Any, fields: Mapping[str, Iterable[Any]]) -> None:
    """Replace fields of a graph, whose elements may be its own; references to what it had are no longer valid."""
    parts = type(graph)(**fields)
    for field in fields:
        graph.ClearField(field)
    graph.MergeFrom(parts)


def reads(node: Any) -> list[str]:
    """Names that a node reads, also in graphs of its own."""
    names = [name for name in node.input if name]
    for graph in graphs_of(node):
        names += [name for inner in graph.node for name in reads(inner)]
        names += [each.name for each in graph.output]
    return names


def _copy_results(model: Any, names: set[str]) -> None:
    """Put a copy between nodes and what reads these results of theirs."""
    make, nodes = require_onnx("Session").helper.make_node, []
    for node in model.graph.node:
        own = [name for name in node.output if name in names]
        for i, name in enumerate(node.output):
            if name in names:
                node.output[i] = f"{name}/result"
        nodes += [node, *(make("Nop", [f"{name}/result"], [name], domain=DOMAIN) for name in own)]
    if len(nodes) > len(model.graph.node):
        set_fields(model.graph, {"node": nodes})


def _rename(model: Any, training: bool) -> None:
    """Let rules of ai.graphcore read nodes whose meaning depends on the session.

    Random numbers, and dropout in training, read a seed, which the session feeds; BatchNormalization of versions before
    14 is in training mode where it has several results. Places of extremes are int32. A reduction over an empty list of
    axes reduces none.
    """
    onnx, numbers = require_onnx("Session"), itertools.count()
    version = next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 14)
    since = {
        "BatchNormalization": 14,
        "Dropout": 12 if training else 0,
        **dict.fromkeys((*_RANDOM, "ArgMax", "ArgMin"), 99),
    }

    def rename(graph: Any, seed: str) -> bool:
        """Rename in a graph whose nodes find a seed under this name; True if one reads it."""
        used = False
        for node in graph.node:
            if node.domain.startswith(OF_VERSION):
                set_entries(node, {OPSET: node.domain.removeprefix(OF_VERSION)})
                node.domain = ""
            if node.domain in ("", "ai.onnx"):
                _reduce_none(onnx, node)
                own = opset_of(node, version) or version
                if node.op_type == "Dropout" and not training and own < 7:
                    node.attribute.append(onnx.helper.make_attribute("is_test", 1))
                if own < since.get(node.op_type, 0):
                    node.domain = DOMAIN
            is_dropout = training and node.op_type in ("Dropout", "ShapedDropout")
            if node.domain == DOMAIN and (is_dropout or node.op_type in _RANDOM):
                node.input.append(seed)
                node.attribute.append(onnx.helper.make_attribute("number", _number(node, next(numbers))))
                used = True
            for inner in graphs_of(node):
                passes = node.op_type in ("Loop", "Scan")
                if rename(inner, f"{seed}/{inner.name}" if passes else seed):
                    used = True
                    if passes:
                        _seed_passes(onnx, node, inner, seed)
        return used

    if rename(model.graph, SEED):
        model.graph.input.append(onnx.helper.make_tensor_value_info(SEED, onnx.TensorProto.UINT32, [2]))
    imported = {each.domain for each in model.opset_import}
    for domain in (DOMAIN, _PASS_SEED[0]):
        if domain not in imported:
            model.opset_import.add(domain=domain, version=1)


def _number(node: Any, count: int) -> int:
    """The number of a node's draws: equal for nodes of one kind whose attribute ``seed`` is equal."""
    given = next((each.f for each in node.attribute if each.name == "seed"), None)
    return count if given is None else int(~np.float32(given).view(np.uint32))


def _seed_passes(onnx: Any, node: Any, body: Any, seed: str) -> None:
    """Give each pass of a loop a seed of its own.

    Raises:
        UnsupportedError: a Scan, whose passes have no number.
    """
    if node.op_type == "Scan":
        raise UnsupportedError(
            f"Session: random numbers in a scan, got {shown(node.output[0])}, expected them in a loop or before it"
        )
    domain, op_type = _PASS_SEED
    made = onnx.helper.make_node(op_type, [seed, body.input[0].name], [f"{seed}/{body.name}"], domain=domain)
    body.node.insert(0, made)


def _pass_seed(_node: Node, seed: Tensor, number: Tensor) -> Tensor:
    """Seed of a pass of a loop, from the loop's seed and the number of the pass."""
    return ops.create_random_seed(seed, cast(ops.reshape(number, ()), dtypes.uint32))


def _find(domain: str, op_type: str, _version: int) -> Rule | None:
    return Rule(_pass_seed, 1, "node", "model") if (domain, op_type) == _PASS_SEED else None


OTHERS.append(_find)


def _reduce_none(onnx: Any, node: Any) -> None:
    axes = [each for each in node.attribute if each.name == "axes"]
    if node.op_type.startswith("Reduce") and axes and not axes[0].ints:
        node.attribute.append(onnx.helper.make_attribute("noop_with_empty_axes", 1))
