"""The ops of ONNX as methods of a Builder, from ONNX's own schemas."""

from __future__ import annotations

import functools
from typing import Any

from popsr._support.host.arguments import read_bool, read_choice
from popsr.compat.popart._recording.signatures import MANY, REQUIRED, Attribute, Ops, Recorder, Signature
from popsr.errors import UnsupportedError
from popsr.io._onnx.format import require_onnx

__all__ = ["DEFAULT_OPSET", "OPSETS", "OnnxOps", "signatures"]

OPSETS = tuple(range(6, 12))
DEFAULT_OPSET = 10
_KEYWORDS = ("and", "or", "not", "xor", "if")  # of C++: their methods begin with logical_
_LEFT_OUT = ("consumed_inputs", "is_test", "sparse_value")
_DTYPES = {("Cast", "to"), ("EyeLike", "dtype"), ("Multinomial", "dtype")} | {
    (f"Random{kind}", "dtype") for kind in ("Normal", "NormalLike", "Uniform", "UniformLike")
}


class OnnxOps(Ops):
    """The ops of a version of ONNX: ``builder.aiOnnxOpset9.matmul([x, w])``.

    A method is named as its op type in lower case; ``and``, ``or``, ``not``, ``xor`` and ``if`` begin with
    ``logical_``. Parameters: the list of inputs, ``num_outputs`` where an op may have more or fewer, the attributes
    that must be given, the others, and ``debugContext``. The result is an id, or a list where an op has several.
    """

    def __init__(self, builder: Recorder, version: int) -> None:
        """The methods of a builder."""
        super().__init__(builder, f"aiOnnxOpset{version}", "", version, signatures(version))

    def constant(self, value: Any, *rest: Any, **named: Any) -> str:
        """A known array: ``(value, is_value_sparse=False, debugContext="")``, the last two optional.

        Raises:
            UnsupportedError: a sparse value.
        """
        given = list(rest)
        is_sparse = (
            given.pop(0) if given and isinstance(given[0], bool) else named.pop("is_value_sparse", False)
        )
        if read_bool(f"{self._where}.constant: is_value_sparse", is_sparse):
            raise UnsupportedError(
                f"{self._where}.constant: a sparse value, got is_value_sparse=True, expected a dense array"
            )
        return str(self._add("constant", (value, *given), named))


@functools.cache
def signatures(version: int) -> dict[str, Signature]:
    """The methods of a version of ONNX."""
    defs = require_onnx("Builder").defs
    read_choice("Builder", "version of ONNX", version, OPSETS)
    found = {}
    for op_type in sorted({each.name for each in defs.get_all_schemas_with_history() if each.domain == ""}):
        if defs.has(op_type, version, "") and not defs.get_schema(op_type, version, "").deprecated:
            made = _signature(defs.get_schema(op_type, version, ""), version)
            found[made.where.rpartition(".")[2]] = made
    return found


def _signature(schema: Any, version: int) -> Signature:
    name = schema.name.lower()
    name = f"logical_{name}" if name in _KEYWORDS else name
    attributes = [
        _attribute(schema.name, each) for each in schema.attributes.values() if each.name not in _LEFT_OUT
    ]
    attributes.sort(key=lambda each: (each.name == "auto_pad", each.default is not REQUIRED, each.name))
    inputs = schema.min_input, min(MANY, schema.max_input)
    outputs = max(1, schema.min_output), min(MANY, schema.max_output)
    return Signature(f"aiOnnxOpset{version}.{name}", schema.name, tuple(attributes), inputs, outputs)


def _attribute(op_type: str, each: Any) -> Attribute:
    kind = "DTYPE" if (op_type, each.name) in _DTYPES else each.type.name
    required = each.required or (op_type, each.name) == ("Constant", "value")
    default = REQUIRED if required else None  # what is left out has ONNX's default
    return Attribute(each.name, kind, default)
