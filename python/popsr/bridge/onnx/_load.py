"""Reading a model: its inputs, weights and opsets, then its nodes."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from popsr import dtypes
from popsr._program.building.gaps import Gap, unsupported_ops
from popsr._program.context import in_sequence
from popsr._program.create_graph import graph_input, graph_output
from popsr._program.ir import Ir
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import (
    read_a,
    read_choice,
    read_flag,
    read_int,
    read_items,
    read_mapping,
    read_path,
    require_known,
)
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.bridge.onnx import graphcore, ops  # noqa: F401  they register their rules
from popsr.bridge.onnx._fields import count_fields
from popsr.bridge.onnx._importer import NONE, Importer, most_nodes, too_many_nodes
from popsr.bridge.onnx._model import OnnxModel
from popsr.bridge.onnx._narrow import Narrow, as_carried, is_narrow, narrow_kind, value_of
from popsr.bridge.onnx._node import Value, Weight
from popsr.bridge.onnx._places import domain_of, function_key
from popsr.bridge.onnx._rules import NotSupportedError
from popsr.bridge.onnx._train.trained import constants_of, is_floating, is_uniform, trained_names
from popsr.bridge.onnx._types import Array, dtype_of
from popsr.errors import (
    ArgumentTypeError,
    AttributeValueError,
    CheckpointError,
    DTypeError,
    GraphError,
    ShapeError,
    UnsupportedError,
    UnsupportedOpsError,
)
from popsr.io._checkpoint import Checkpoint
from popsr.io._onnx.format import require_onnx
from popsr.io._onnx.read import open_onnx
from popsr.io._open_file import OpenFile
from popsr.replicas import ReplicaGrouping

__all__ = ["load"]

_OPSETS = (1, 28)
"""Versions of ONNX's own domain whose ops are known."""

MAX_TRAINED = 1024
"""Passes of a loop that are ops one after another, where gradients are wanted and ``unroll`` is not given."""

Weights = Literal["variables", "constants"]


@public
def load(
    model: Any,
    *,
    replicas: int = 1,
    shapes: Mapping[str, int | Iterable[int]] | None = None,
    values: Mapping[str, Any] | None = None,
    weights: Weights = "variables",
    trainable: Iterable[str] | None = None,
    external_data: bool = True,
    streams: bool = True,
    unroll: bool | None = None,
    groups: Mapping[str, ReplicaGrouping] | None = None,
) -> OnnxModel:
    """Read an ONNX model as a program.

    Its nodes become a graph, whose inputs are the model's and its weights. The main graph loads the inputs from
    streams, calls the graph and stores the outputs, unless ``streams`` is False.

    Args:
        model: a path, or a ``ModelProto``.
        replicas: their number; each has inputs of its own.
        shapes: a number for each symbolic dimension, as ``{"N": 4}``, or the shape of an input by its name.
        values: inputs that have a fixed value and are no inputs of the program, such as a shape that is computed.
        weights: "variables": floats that train are variables, in the main graph under their names; others are
            constants. "constants": all are constants.
        trainable: names of the floats that train, among initializers and results of ``Constant`` nodes. Default:
            those that an op takes as its weight, and operands of sums and products that look learned: of several
            elements, and no masks.
        external_data: read data of initializers from files beneath the folder of the model. False: refused.
        streams: run the graph in the main graph. False for training: see ``OnnxModel.call``.
        unroll: passes of loops and recurrent layers are ops one after another, so that gradients go through them.
            False: a graph that repeats, at which gradients stop. Default: as ops with ``streams=False``, up to 1,024
            passes.
        groups: by the name of a weight, the replicas that share it. Default: all do. Groups start with equal values.
    Returns:
        The program with its graph, inputs, outputs and variables by ONNX's names.
    Raises:
        CheckpointError: the file is damaged or not an ONNX model, or a tensor in it contradicts itself.
        UnsupportedOpsError: nodes without a counterpart: all of them, with their places.
        ShapeError: a dimension without a value.
        GraphError: the graph is put together wrongly: a cycle, or a name without a node.
        MissingPackageError: onnx is not installed, or too old.
    """
    where = "bridge.onnx.load"
    onnx = require_onnx(where)
    own = read_flag(f"{where}: streams", streams)
    reading = _Reading(onnx, where, shapes, values, weights, trainable, external_data, unroll, groups)
    made = reading.read(model, replicas, own)
    made._for_training = lambda count: reading.read(
        model, made.ir.replication_factor if count is None else count, False
    )
    return made


class _Reading:
    """Options of one call of ``load``: a training step reads the model again, with other replicas."""

    def __init__(
        self,
        onnx: Any,
        where: str,
        shapes: Any,
        values: Any,
        weights: Any,
        trainable: Any,
        external_data: bool,
        unroll: bool | None,
        groups: Any,
    ) -> None:
        self._onnx, self._where = onnx, where
        self._unroll = None if unroll is None else read_flag(f"{where}: unroll", unroll)
        extents = {} if shapes is None else read_mapping(where, "shapes", shapes)
        self._shapes = {
            name: tuple(each) if isinstance(each, Iterator) else each for name, each in extents.items()
        }
        given = {} if values is None else read_mapping(where, "values", values)
        self._values: dict[str, Array] = {str(name): np.asarray(value) for name, value in given.items()}
        self._weights = read_choice(where, "weights", weights, ("variables", "constants"))
        self._external = read_flag(f"{where}: external_data", external_data)
        self._trainable = None if trainable is None else read_items(where, "trainable", trainable)
        if self._trainable is not None and self._weights == "constants":
            raise AttributeValueError(
                f"{where}: trainable and constant, got {shown(self._trainable)} and weights='constants', expected one "
                "of them"
            )
        self._groups = {} if groups is None else dict(read_mapping(where, "groups", groups))
        for name, grouping in self._groups.items():
            read_a(f"{where}: groups of {shown(name)}", grouping, ReplicaGrouping)

    def read(self, model: Any, replicas: int, streams: bool) -> OnnxModel:
        count = read_int(f"{self._where}: replicas", replicas, 1)
        self._gaps: list[Gap] = []
        self._narrow: dict[str, Narrow] = {}
        self._as_declared = True
        proto, arrays, name = self._proto(model)
        ir = Ir(count)
        graph = ir.create_empty_graph(name)
        opsets, functions = self._opsets(proto), self._functions(proto)
        passes = self._passes(streams)
        importer = Importer(
            self._onnx, ir, graph, self._where, opsets, functions, unroll=passes, groups=self._groups
        )
        with ir.main_graph, in_sequence(), graph, in_sequence():
            names = self._known_names(proto, arrays)
            trained = self._trained(proto, functions, arrays)
            require_known(f"{self._where}: groups of what does not train", self._groups, trained)
            env: dict[str, Value] = {**arrays, **trained, **self._narrow}
            importer.learned = {name: made for name, made in trained.items() if name not in arrays}
            for name in importer.learned:
                del env[name]
            inputs = self._inputs(importer, names, env)
            results = importer.run(proto.graph, env, self._as_declared)
            self._refuse(importer)
            outputs = self._outputs(importer, proto, results)
        fixed = {name: array for name, array in arrays.items() if is_floating(array) and name not in trained}
        made = OnnxModel._of(name, ir, graph, inputs, outputs, importer.weights, fixed, tensors_of(env))
        if streams:
            made._add_streams()
        return made

    # The message

    def _proto(self, model: Any) -> tuple[Any, dict[str, Array], str]:
        """The model, its initializers and its name."""
        if isinstance(model, self._onnx.ModelProto):
            return model, self._arrays(model, ()), model.graph.name or "model"
        if not isinstance(model, (str, os.PathLike)):
            raise ArgumentTypeError(
                f"{self._where}: model is not a model, got {shown(model)}, expected a path or a ModelProto"
            )
        path = read_path(self._where, model)
        with OpenFile(self._where, path) as file:
            count_fields(self._onnx, file)
        arrays = self._stored(path)
        proto = self._parsed(path)
        return proto, {**arrays, **self._arrays(proto, arrays)}, path.stem

    def _stored(self, path: Path) -> dict[str, Array]:
        """The initializers of a file, whose structure is checked before memory is taken for data."""
        with open_onnx(self._where, path) as stored:
            for each in stored.tensors.values():
                if each.location is not None and not self._external:
                    raise self._elsewhere(each.name, "external_data=False")
            wide = {name: name for name, each in stored.tensors.items() if not is_narrow(each.type_name)}
            return dict(Checkpoint(stored, wide).items())

    def _parsed(self, path: Path) -> Any:
        with OpenFile(self._where, path) as file:
            data = file.read(0, file.size)
            try:
                return self._onnx.ModelProto.FromString(data)
            except Exception as error:
                raise file.bad(f"is not an ONNX model, got {shown(str(error))}") from None

    def _elsewhere(self, name: str, got: str) -> UnsupportedError:
        return UnsupportedError(
            f"{self._where}: initializer {shown(name)} has its data in another file, got {got}, expected a path with "
            "external_data=True, or a model that holds its data"
        )

    def _arrays(self, proto: Any, known: Container[str]) -> dict[str, Array]:
        """Initializers that the message holds, but those that are known."""
        arrays = {}
        for position, each in enumerate(proto.graph.initializer, 1):
            if each.name in known:
                continue
            if each.data_location == self._onnx.TensorProto.EXTERNAL:
                raise self._elsewhere(each.name, "a message without a folder")
            if each.name in arrays:
                raise CheckpointError(
                    f"{self._where}: two initializers of one name, got {shown(each.name)}, expected one of each"
                )
            try:
                made = value_of(each)
                arrays[each.name] = made.value if isinstance(made, Narrow) else made
                if isinstance(made, Narrow):
                    self._narrow[each.name] = made
            except NotSupportedError as error:
                self._gaps.append(Gap(f"initializer ({error})", f"{each.name}:{position}"))
            except (ValueError, TypeError, OverflowError, MemoryError) as error:
                raise CheckpointError(
                    f"{self._where}: initializer contradicts itself, got {shown(each.name)}: {error!s:.200}"
                ) from None
        if proto.graph.sparse_initializer:
            self._gaps.append(Gap("sparse initializer", f"{proto.graph.name}:1"))
        return arrays

    def _opsets(self, proto: Any) -> dict[str, int]:
        """Version of each domain."""
        opsets = {domain_of(each): int(each.version) for each in proto.opset_import}
        if not opsets:
            if proto.graph.node or proto.ir_version >= 3:
                raise GraphError(
                    f"{self._where}: model without opsets, got no opset_import, expected the version of each domain"
                )
            return {"": 1}
        version = opsets.get("")
        if version is not None and not _OPSETS[0] <= version <= _OPSETS[1]:
            raise UnsupportedError(
                f"{self._where}: opset is not known, got {version}, expected {_OPSETS[0]} to {_OPSETS[1]}"
            )
        return opsets

    def _functions(self, proto: Any) -> dict[Any, Any]:
        return {function_key(each, each.name): each for each in proto.functions}

    def _passes(self, streams: bool) -> int | None:
        """Passes of a loop up to which they are ops one after another; None: any number."""
        if self._unroll is None:
            return 0 if streams else MAX_TRAINED
        return None if self._unroll else 0

    # Values

    def _trained(self, proto: Any, functions: Any, arrays: Mapping[str, Array]) -> dict[str, Weight]:
        """The weights by name, among initializers and ``Constant`` nodes."""
        if self._weights == "constants":
            return {}
        known = {**constants_of(self._onnx, proto.graph), **arrays}
        floats = {name: array for name, array in known.items() if is_floating(array)}
        if self._trainable is not None:
            require_known(f"{self._where}: trainable, but no float of the model", self._trainable, floats)
            return {name: Weight(name, floats[name]) for name in self._trainable}
        floats = {name: array for name, array in floats.items() if name in arrays or not is_uniform(array)}
        most = 4 * most_nodes(proto.graph)
        try:
            names = trained_names(proto.graph, functions, floats, known, most)
        except RecursionError:
            raise too_many_nodes(self._where) from None
        return {name: Weight(name, array) for name, array in floats.items() if name in names}

    def _known_names(self, proto: Any, arrays: Mapping[str, Array]) -> list[Any]:
        """The inputs without an initializer."""
        free = [each for each in proto.graph.input if each.name not in arrays]
        names = [each.name for each in free]
        if len(set(names)) != len(names):
            raise GraphError(
                f"{self._where}: two inputs of one name, got {shown(names)}, expected different names"
            )
        require_known(f"{self._where}: values of what is not an input", self._values, names)
        return free

    def _inputs(self, importer: Importer, free: list[Any], env: dict[str, Value]) -> dict[str, Tensor]:
        """Inputs of the graph for those of the model."""
        inputs = {}
        for position, each in enumerate(free, 1):
            if each.name in self._values:
                env[each.name] = self._value(each)
                continue
            try:
                shape, kind = self._type(each)
            except NotSupportedError as error:
                self._gaps.append(Gap(f"input ({error})", f"{each.name}:{position}"))
                env[each.name] = NONE
                continue
            made = graph_input(shape, kind, each.name)
            importer.inputs[made] = each.name
            env[each.name] = inputs[each.name] = made
            if (narrow := narrow_kind(each.type.tensor_type.elem_type)) is not None:
                env[each.name] = Narrow(made, narrow)
        return inputs

    def _value(self, each: Any) -> Array | Narrow:
        """The fixed value of an input, in the input's type."""
        value = as_carried(self._values[each.name])
        if each.type.HasField("tensor_type"):
            narrow = narrow_kind(each.type.tensor_type.elem_type)
            if narrow is not None and value.dtype == narrow.dtype.as_numpy():
                return Narrow(value, narrow)
            try:
                kind = dtype_of(each.type.tensor_type.elem_type).as_numpy()
            except NotSupportedError:
                return value
            if value.dtype != kind:
                raise DTypeError(
                    f"{self._where}: value of {shown(each.name)} has another type, got {value.dtype}, expected {kind}"
                )
        return value

    def _type(self, each: Any) -> tuple[tuple[int, ...], dtypes.dtype]:
        """Shape and element type of an input."""
        kind = each.type.WhichOneof("value")
        if kind != "tensor_type":
            raise NotSupportedError(f"{str(kind).removesuffix('_type')} instead of a tensor")
        tensor = each.type.tensor_type
        given = self._shapes.get(each.name)
        if given is not None and not isinstance(given, int):
            shape = tuple(int(n) for n in given)
            self._as_declared &= _fits(shape, tensor)
        elif not tensor.HasField("shape"):
            raise ShapeError(
                f"{self._where}: input {shown(each.name)} has no shape, got {shown(self._shapes)}, "
                "expected its shape by its name in shapes"
            )
        else:
            shape = tuple(self._extent(each.name, axis, dim) for axis, dim in enumerate(tensor.shape.dim))
        if any(not 0 <= extent < 1 << 40 for extent in shape):
            raise ShapeError(
                f"{self._where}: input {shown(each.name)} has a wrong shape, got {list(shape)}, expected 0 or more"
            )
        narrow = narrow_kind(tensor.elem_type)
        return shape, dtype_of(tensor.elem_type) if narrow is None else narrow.dtype

    def _extent(self, name: str, axis: int, dim: Any) -> int:
        if dim.HasField("dim_value"):
            return int(dim.dim_value)
        given = self._shapes.get(dim.dim_param) if dim.dim_param else None
        if not isinstance(given, (int, np.integer)):
            symbol = dim.dim_param or "?"
            raise ShapeError(
                f"{self._where}: input {shown(name)} has a symbolic dimension, got {shown(symbol)} at axis "
                f"{axis}, expected a number for it in shapes"
            )
        return int(given)

    # Results

    def _refuse(self, importer: Importer) -> None:
        gaps = [*self._gaps, *importer.gaps]
        if gaps:
            error = unsupported_ops(self._where, gaps, "the notes name all nodes")
            needed = tuple(dict.fromkeys(importer.needed))
            raise with_needed(error, needed)

    def _outputs(self, importer: Importer, proto: Any, results: list[Value]) -> dict[str, Tensor]:
        """Outputs of the graph for those of the model."""
        outputs: dict[str, Tensor] = {}
        for each, value in zip(proto.graph.output, results, strict=True):
            if each.name in outputs:
                raise GraphError(
                    f"{self._where}: two outputs of one name, got {shown(each.name)}, expected different names"
                )
            try:
                carried = value.value if isinstance(value, Narrow) else value
                outputs[each.name] = importer.output(carried, list(outputs.values()))
            except NotSupportedError as error:
                self._gaps.append(Gap(f"output ({error})", f"{each.name}:{len(outputs) + 1}"))
        self._refuse(importer)
        for t in outputs.values():
            graph_output(t)
        return outputs


def _fits(shape: tuple[int, ...], tensor: Any) -> bool:
    """True if extents are those of a declared type, where it says numbers."""
    dims = tensor.shape.dim if tensor.HasField("shape") else ()
    return not any(
        each.HasField("dim_value") and each.dim_value != n for each, n in zip(dims, shape, strict=False)
    )


def tensors_of(env: Mapping[str, Value]) -> dict[str, Tensor]:
    """The tensors among values, by name."""
    return {
        name: t
        for name, value in env.items()
        if isinstance(t := value.tensor if isinstance(value, Weight) else value, Tensor)
    }


def with_needed(error: UnsupportedOpsError, inputs: tuple[str, ...]) -> UnsupportedOpsError:
    """An error that says which inputs must have values when the model is read."""
    error.needed = inputs  # type: ignore[attr-defined]
    return error
