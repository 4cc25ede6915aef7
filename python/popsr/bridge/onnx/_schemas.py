"""Nodes beside the schemas that ONNX publishes for their opset: attributes, operands, types, inferred results.

A rule reads what it needs of a node and would pass over the rest, so each node is checked in one place: what it is
given before its rule runs, and its results after it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from popsr._program.tensor import Tensor
from popsr._support.text.shown import shown
from popsr.bridge.onnx._narrow import Narrow
from popsr.bridge.onnx._node import Node, Sequenced, Value, Weight
from popsr.bridge.onnx._rules import MisfitError, NotSupportedError
from popsr.bridge.onnx._types import element_code, type_text
from popsr.errors import AttributeValueError, DTypeError, ShapeError

__all__ = ["Schemas", "defaults_of", "element_of", "shape_in", "type_of"]

_MAX_KNOWN = 64
"""Elements of the greatest known operand that inference is told: shapes, axes, lengths."""
_MAX_ATTRIBUTE = 1 << 12
"""Bytes of the greatest attribute of a node whose results are inferred."""
_NONE = "noop_with_empty_axes"
"""Sessions of ``popart`` give it to reductions of any version."""


class Parameter(NamedTuple):
    """An operand or a result of a schema.

    Attributes:
        name: its name.
        types: the types that it may have, as ONNX writes them.
        symbol: what has one type in a node, as ``T``; "" where each may have its own.
        option: "Single", "Optional" or "Variadic".
    """

    name: str
    types: frozenset[str]
    symbol: str
    option: str

    @property
    def is_value(self) -> bool:
        """True if some of its types are those of tensors."""
        return any("map(" not in each for each in self.types)


class Signature(NamedTuple):
    """A schema in plain tables: types and defaults of attributes, names of those that it needs, operands, results.

    ``is_later`` is False for the first version of an op, which onnxruntime reads although one is deprecated.
    """

    schema: Any
    is_later: bool
    attributes: Mapping[str, int]
    defaults: Mapping[str, Any]
    needed: frozenset[str]
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]


class Inferred(NamedTuple):
    """ONNX's inference of a result: the number of its element type, and extents, of which some are not known."""

    code: int
    shape: tuple[int | None, ...] | None


class Schemas:
    """The checks of one model's nodes. Nodes of one op, on operands of the same types, are checked once."""

    def __init__(self, onnx: Any) -> None:
        """Without any node checked."""
        self._onnx = onnx
        self._checked: dict[Any, tuple[Inferred | None, ...]] = {}
        self._stated: dict[int, Value] = {}
        self._refused = (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError)

    def state(self, values: Iterable[Value]) -> None:
        """Note values that the model states, as initializers and results of ``Constant``; others it computes."""
        self._stated.update((id(each), each) for each in values if isinstance(each, np.ndarray))

    def check(self, node: Node, domain: str, operands: Sequence[Value]) -> dict[str, str]:
        """Refuse a node that its schema does not allow, before its rule runs.

        Returns:
            The types that the symbols of its schema stand for, for ``check_results``.
        Raises:
            MisfitError: its attributes, the number of its operands and results, or the types of its operands.
        """
        found = _signature(self._onnx, domain, node.proto.op_type, node.opset)
        symbols: dict[str, str] = {}
        if found is None:
            return symbols
        if found.schema.deprecated and found.is_later:
            raise MisfitError(
                f"is of an op that opset {node.opset} has no more, got {node.proto.op_type}, expected an earlier opset "
                "or the op that took its place",
                AttributeValueError,
            )
        _check_attributes(found, node)
        _check_count(found.inputs, node.proto.input, "operand", node.opset)
        _check_count(found.outputs, node.proto.output, "result", node.opset)
        _bound(found.inputs, node.proto.input, operands, "operand", symbols)
        return symbols

    def check_results(
        self,
        node: Node,
        domain: str,
        operands: Sequence[Value],
        results: Sequence[Value],
        symbols: dict[str, str],
        own_shapes: bool,
    ) -> None:
        """Refuse a node whose results are not those that its schema allows, and that ONNX infers.

        With ``own_shapes`` nothing is inferred. A result of nothing is that of its attributes, which older opsets
        allow fewer types than readers do.

        Raises:
            MisfitError: their types or shapes, or operands of shapes that inference refuses.
        """
        found = _signature(self._onnx, domain, node.proto.op_type, node.opset)
        if found is None:
            return
        missing = [name for name in node.proto.output[len(results) :] if name]
        if missing:
            raise MisfitError(
                f"names a result that it does not make, got {shown(missing[0])}, expected {len(results)} results",
                AttributeValueError,
            )
        if found.inputs and all(each.is_value for each in found.outputs):
            _bound(found.outputs, node.proto.output, results, "result", symbols)
        inferred = () if own_shapes or not found.inputs else self._inferred(found, node, domain, operands)
        for name, value, wanted in zip(node.proto.output, results, inferred, strict=False):
            if name and wanted is not None:
                _compare(name, value, wanted)

    def _inferred(
        self, found: Signature, node: Node, domain: str, operands: Sequence[Value]
    ) -> tuple[Inferred | None, ...]:
        """The results as ONNX infers them; none of ops with graphs, or on sequences of unknown elements."""
        attributes = node.attributes
        if found.schema.deprecated or (_NONE in attributes and _NONE not in found.attributes):
            return ()  # inference refuses ops that are deprecated since, and knows no attribute of ``popart``
        graphs = (self._onnx.AttributeProto.GRAPH, self._onnx.AttributeProto.GRAPHS)
        if any(each.type in graphs or each.ByteSize() > _MAX_ATTRIBUTE for each in attributes.values()):
            return ()
        try:
            inputs = tuple((_key(value), id(value) in self._stated) for value in operands)
        except NotSupportedError:
            return ()
        wanted = tuple(bool(name) for name in node.proto.output)
        texts = tuple((name, each.SerializeToString()) for name, each in attributes.items())
        key = (domain, node.proto.op_type, node.opset, wanted, inputs, texts)
        if key not in self._checked:
            self._checked[key] = self._infer(found, node, domain, operands)
        return self._checked[key]

    def _infer(
        self, found: Signature, node: Node, domain: str, operands: Sequence[Value]
    ) -> tuple[Inferred | None, ...]:
        types: dict[str, Any] = {}
        stated: dict[str, Any] = {}
        computed: dict[str, Any] = {}
        names: list[str] = []
        for number, value in enumerate(operands):
            names.append("" if value is None else f"x{number}")
            if value is None:
                continue
            types[names[-1]] = _proto(self._onnx, value, found.inputs[min(number, len(found.inputs) - 1)])
            if isinstance(value, np.ndarray) and value.size <= _MAX_KNOWN:
                known = stated if id(value) in self._stated else computed
                known[names[-1]] = self._onnx.numpy_helper.from_array(value)
        proto = self._proto(found, node, domain, names)
        try:
            try:
                inferred = self._asked(found, proto, types, {**stated, **computed}, node.opset)
            except self._refused:
                # Inference asks more of values that it is told: bodies of ONNX make a number of rank 1 for Range.
                if not computed:
                    raise
                inferred = self._asked(found, proto, types, stated, node.opset)
        except self._refused as error:
            raise MisfitError(
                f"has operands that ONNX refuses, got {shown(str(error).rpartition('Error] ')[2])} for shapes "
                f"{shown([shape_in(each) for each in operands])}, expected operands that fit each other",
                ShapeError,
            ) from None
        return tuple(_read(inferred.get(name)) for name in proto.output)

    def _proto(self, found: Signature, node: Node, domain: str, names: Sequence[str]) -> Any:
        """A node of these operands, with defaults in place of attributes: inference has some of its own."""
        results = [f"y{number}" if name else "" for number, name in enumerate(node.proto.output)]
        proto = self._onnx.helper.make_node(node.proto.op_type, names, results, domain=domain)
        for name in found.attributes:
            given = node.attributes.get(name, found.defaults.get(name))
            if given is not None:
                made = proto.attribute.add()
                made.CopyFrom(given)
                made.name = name
        return proto

    def _asked(self, found: Signature, proto: Any, types: Any, data: Any, opset: int) -> Any:
        imports = [self._onnx.helper.make_opsetid(proto.domain, opset)]
        return self._onnx.shape_inference.infer_node_outputs(
            found.schema, proto, types, data, opset_imports=imports
        )


@functools.cache
def _signature(onnx: Any, domain: str, op_type: Any, opset: int) -> Signature | None:
    """The schema of an op in a version; None for an op that this onnx does not know."""
    if not isinstance(op_type, str) or not onnx.defs.has(op_type, opset, domain):  # bytes, if damaged
        return None
    if not domain and opset > onnx.defs.onnx_opset_version():
        return None
    schema = onnx.defs.get_schema(op_type, opset, domain)
    given = schema.attributes
    constraints = {each.type_param_str for each in schema.type_constraints}

    def parameters(each: Iterable[Any]) -> tuple[Parameter, ...]:
        return tuple(
            Parameter(
                one.name,
                frozenset(one.types),
                one.type_str if one.is_homogeneous and one.type_str in constraints else "",
                one.option.name,
            )
            for one in each
        )

    return Signature(
        schema,
        schema.since_version > 1 and onnx.defs.has(op_type, schema.since_version - 1, domain),
        {name: each.type.value for name, each in given.items()},
        defaults_of(schema),
        frozenset(name for name, each in given.items() if each.required),
        parameters(schema.inputs),
        parameters(schema.outputs),
    )


def defaults_of(schema: Any) -> dict[str, Any]:
    """The attributes that a schema gives to a node that leaves them out."""
    return {
        name: each.default_value
        for name, each in schema.attributes.items()
        if each.default_value is not None and each.default_value.type
    }


# Attributes and numbers of operands


def _check_attributes(found: Signature, node: Node) -> None:
    """Refuse attributes that an op of this version does not have. Names with two underscores are notes of a tool."""
    for name in sorted(node.attributes):
        kind = found.attributes.get(name)
        if kind is None:
            if name.startswith("__") or name == _NONE:
                continue
            raise MisfitError(
                f"has an attribute that opset {node.opset} does not have, got {shown(name)}, expected one of "
                f"{shown(sorted(found.attributes))}",
                AttributeValueError,
            )
        given = node.attributes[name].type
        if given != kind:
            raise MisfitError(
                f"has an attribute of a wrong type, got {shown(name)} of type {given}, expected {kind} of "
                "AttributeProto.AttributeType",
                AttributeValueError,
            )
    for name in sorted(found.needed - node.attributes.keys()):
        raise MisfitError(
            f"lacks an attribute that opset {node.opset} needs, got {shown(sorted(node.attributes))}, expected "
            f"{shown(name)} too",
            AttributeValueError,
        )


def _check_count(parameters: Sequence[Parameter], names: Sequence[str], what: str, opset: int) -> None:
    """Refuse a number of operands or results that an op does not have, and those left out that it needs."""
    endless = bool(parameters) and parameters[-1].option == "Variadic"
    if len(names) > len(parameters) and not endless:
        raise MisfitError(
            f"has too many {what}s for opset {opset}, got {len(names)}, expected at most {len(parameters)}",
            AttributeValueError,
        )
    for number, each in enumerate(parameters):
        if each.option == "Single" and (number >= len(names) or not names[number]):
            raise MisfitError(
                f"lacks the {what} {shown(each.name)}, got {shown(list(names))}, expected a name at place {number + 1}",
                AttributeValueError,
            )


# Types


def _bound(
    parameters: Sequence[Parameter],
    names: Sequence[str],
    values: Sequence[Value],
    what: str,
    symbols: dict[str, str],
) -> None:
    """Refuse values of types that a schema does not allow; symbols become the types that they stand for."""
    for number, value in enumerate(values[: len(names)] if parameters else ()):
        each, kind = parameters[min(number, len(parameters) - 1)], type_of(value)
        if kind is None or not names[number]:
            continue
        if kind not in each.types and f"optional({kind})" not in each.types:
            raise _misfit(what, each.name, names[number], kind, sorted(each.types))
        if each.symbol and symbols.setdefault(each.symbol, kind) != kind:
            raise _misfit(what, each.name, names[number], kind, [symbols[each.symbol]])


def _misfit(what: str, parameter: str, name: str, kind: str, expected: Sequence[str]) -> MisfitError:
    wanted = [
        each.removeprefix("tensor(").removesuffix(")") for each in expected if each.startswith("tensor(")
    ]
    advice = ": convert it with a Cast" if what == "operand" and wanted else ""
    return MisfitError(
        f"has {'an' if what == 'operand' else 'a'} {what} of a wrong type, got {kind} for {shown(name)} "
        f"({parameter}), expected {' or '.join(wanted or expected)}{advice}",
        DTypeError,
    )


def type_of(value: Value) -> str | None:
    """A value's type as ONNX writes it; None where it is not known, as of an empty sequence."""
    if isinstance(value, Sequenced):
        inner = {type_of(each) for each in value}
        only = inner.pop() if len(inner) == 1 else None
        return None if only is None else f"seq({only})"
    try:
        return f"tensor({type_text(element_of(value))})"
    except NotSupportedError:
        return None


def element_of(value: Value) -> int:
    """The number of a value's element type.

    Raises:
        NotSupportedError: it has none.
    """
    if isinstance(value, Narrow):
        return value.kind.code
    if isinstance(value, Weight):
        value = value.array
    if not isinstance(value, (Tensor, np.ndarray)):
        raise NotSupportedError("of a sequence")
    return element_code(value.dtype)


def shape_in(value: Value) -> list[int] | None:
    """Extents of a value; None of one that is not a tensor."""
    if isinstance(value, Weight):
        value = value.array
    return list(value.shape) if hasattr(value, "shape") else None


# Inference


def _key(value: Value) -> Any:
    """A value's type and shape, and its elements where inference is told them."""
    if value is None:
        return None
    if isinstance(value, Sequenced):
        if type_of(value) is None:
            raise NotSupportedError("of a sequence of unknown elements")
        return tuple(_key(each) for each in value)
    known = isinstance(value, np.ndarray) and value.size <= _MAX_KNOWN
    array = value.array if isinstance(value, Weight) else value
    return element_of(value), tuple(array.shape), value.tobytes() if known else None


def _proto(onnx: Any, value: Value, each: Parameter) -> Any:
    """ONNX's type of a value, as an operand of a schema."""
    helper = onnx.helper
    if isinstance(value, Sequenced):
        made = helper.make_sequence_type_proto(
            helper.make_tensor_type_proto(element_of(value[0]), None)
            if not isinstance(value[0], Sequenced)
            else _proto(onnx, value[0], each)
        )
    else:
        made = helper.make_tensor_type_proto(element_of(value), shape_in(value))
    kind = type_of(value)
    return made if kind in each.types else helper.make_optional_type_proto(made)


def _read(proto: Any) -> Inferred | None:
    """The type and shape of a tensor; None of other results."""
    if proto is None or proto.WhichOneof("value") != "tensor_type":
        return None
    tensor = proto.tensor_type
    extents = [each.dim_value if each.HasField("dim_value") else None for each in tensor.shape.dim]
    return Inferred(tensor.elem_type, tuple(extents) if tensor.HasField("shape") else None)


def _compare(name: str, value: Value, wanted: Inferred) -> None:
    try:
        code = element_of(value)
    except NotSupportedError:
        return
    if wanted.code and wanted.code != code:
        raise _misfit(
            "result", "inferred", name, f"tensor({type_text(code)})", [f"tensor({type_text(wanted.code)})"]
        )
    shape = shape_in(value)
    if wanted.shape is None or shape is None:
        return
    known = [n for n in zip(wanted.shape, shape, strict=False) if n[0] is not None]
    if len(shape) != len(wanted.shape) or any(n != have for n, have in known):
        raise MisfitError(
            f"has a result of another shape than ONNX infers, got {shape} for {shown(name)}, expected "
            f"{shown(list(wanted.shape))}: its attributes and the shapes of its operands contradict each other",
            ShapeError,
        )
