"""The ops of ONNX as methods of a Builder, from ONNX's own schemas."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from popsr._host.arguments import read_choice
from popsr._text.suggestions import unknown_name
from popsr.compat.popart._signatures import REQUIRED, Attribute, Signature
from popsr.io._onnx_format import require_onnx

if TYPE_CHECKING:
    from popsr.compat.popart._builder import Builder

__all__ = ["DEFAULT_OPSET", "OPSETS", "OnnxOps", "signatures"]

OPSETS = tuple(range(6, 12))
DEFAULT_OPSET = 10
_KEYWORDS = ("and", "or", "not", "xor", "if")  # of C++: their methods begin with logical_
_LEFT_OUT = {"consumed_inputs": "", "is_test": "", "auto_pad": "LAST"}
_DTYPES = {("Cast", "to"), ("EyeLike", "dtype"), ("Multinomial", "dtype")} | {
    (f"Random{kind}", "dtype") for kind in ("Normal", "NormalLike", "Uniform", "UniformLike")
}


class OnnxOps:
    """The ops of a version of ONNX: ``builder.aiOnnxOpset9.matmul([x, w])``.

    A method is named as its op type in lower case; ``and``, ``or``, ``not``, ``xor`` and ``if`` begin with
    ``logical_``. Parameters: the list of inputs, ``num_outputs`` where an op may have more or fewer, the attributes
    that must be given, the others, and ``debugContext``. The result is an id, or a list where an op has several.
    """

    def __init__(self, builder: Builder, version: int) -> None:
        """The methods of a builder."""
        self._builder, self._version = builder, version

    def __getattr__(self, name: str) -> Callable[..., Any]:
        known = signatures(self._version)
        if name not in known:
            raise unknown_name(f"aiOnnxOpset{self._version}", "op", name, known)

        def add(*args: Any, **named: Any) -> Any:
            return self._builder._add(known[name], args, named, "", self._version)

        add.__name__ = name
        return add

    def __dir__(self) -> list[str]:
        return sorted(signatures(self._version))


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
    attributes.sort(key=lambda each: (each.default is not REQUIRED, each.name))
    attributes += [
        _attribute(schema.name, each) for each in schema.attributes.values() if each.name == "auto_pad"
    ]
    most = (1 << 16) if schema.max_input > (1 << 16) else schema.max_input
    outputs = (max(1, schema.min_output), min(1 << 16, schema.max_output))
    where = f"aiOnnxOpset{version}.{name}"
    return Signature(where, schema.name, tuple(attributes), (schema.min_input, most), outputs)


def _attribute(op_type: str, each: Any) -> Attribute:
    kind = "DTYPE" if (op_type, each.name) in _DTYPES else each.type.name
    required = each.required or (op_type, each.name) == ("Constant", "value")
    default = REQUIRED if required else None  # what is left out has ONNX's default
    return Attribute(each.name, kind, default)
