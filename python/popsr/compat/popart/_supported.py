"""The ops of a Builder that sessions have, as PopART's queries list them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from popsr._support.host.arguments import read_bool
from popsr._support.lazy import LazyModule
from popsr.compat._objects.identifiers import OperatorIdentifier
from popsr.compat.popart._recording import graphcore_ops as _graphcore_ops
from popsr.compat.popart._recording import onnx_ops as _onnx_ops
from popsr.compat.popart._recording.signatures import Signature
from popsr.io._onnx.format import require_onnx

if TYPE_CHECKING:
    from popsr.compat.popart import _model
else:  # onnx is read when it is needed
    _model = LazyModule("popsr.compat.popart._model")

__all__ = [
    "OpDefinition",
    "getSupportedOperations",
    "getSupportedOperationsDefinition",
    "getUnsupportedOperations",
]

FAMILIES: dict[str, tuple[int, ...]] = {
    f"aiOnnxOpset{version}": (version,) for version in _onnx_ops.OPSETS
} | {
    "aiOnnx": _onnx_ops.OPSETS[::-1],  # of the version of the model, which a reader does not know
    "aiGraphcore": (),
    "aiGraphcoreOpset1": (),
}
"""Versions of ONNX by the properties of a Builder that have its ops."""


@dataclass(frozen=True)
class OpDefinition:
    """Description of an op.

    Attributes:
        inputs: least and greatest number of inputs.
        outputs: least and greatest number of outputs.
        attributes: names of its attributes.
    """

    inputs: tuple[int, int]
    outputs: tuple[int, int]
    attributes: tuple[str, ...]


def _operations() -> dict[OperatorIdentifier, Signature]:
    """All ops of a Builder, each with the version that it is from."""
    defs = require_onnx("getSupportedOperations").defs
    found = {}
    for version in _onnx_ops.OPSETS:
        for each in _onnx_ops.signatures(version).values():
            since = int(defs.get_schema(each.op_type, version, "").since_version)
            found[OperatorIdentifier("ai.onnx", each.op_type, since)] = each
    for each in _graphcore_ops.signatures().values():
        found[OperatorIdentifier(_graphcore_ops.DOMAIN, each.op_type, 1)] = each
    return found


def _is_there(each: OperatorIdentifier) -> bool:
    return _model.can_read("" if each.domain == "ai.onnx" else each.domain, each.type, each.version)


def getSupportedOperations(includePrivate: bool = False) -> list[OperatorIdentifier]:
    """Identifiers of the ops that sessions have; none is private."""
    read_bool("getSupportedOperations: includePrivate", includePrivate)
    return [each for each in _operations() if _is_there(each)]


def getUnsupportedOperations(opsets: Any = None) -> list[OperatorIdentifier]:
    """Identifiers of the ops that a Builder records and sessions refuse."""
    del opsets
    return [each for each in _operations() if not _is_there(each)]


def getSupportedOperationsDefinition(includePrivate: bool = False) -> dict[OperatorIdentifier, OpDefinition]:
    """Descriptions of the ops that sessions have."""
    read_bool("getSupportedOperationsDefinition: includePrivate", includePrivate)
    return {
        key: OpDefinition(each.inputs, each.outputs, tuple(a.name for a in each.attributes))
        for key, each in _operations().items()
        if _is_there(key)
    }


@functools.cache
def methods_of(family: str) -> Mapping[str, bool]:
    """Methods of ``aiOnnx``, ``aiGraphcore`` and their kin; True of those whose op sessions have."""
    if family not in FAMILIES:
        return {}
    versions = FAMILIES[family]
    found = {
        name: _model.can_read("", each.op_type, version)
        for version in reversed(versions)
        for name, each in _onnx_ops.signatures(version).items()
    }
    own = {} if versions else _graphcore_ops.signatures()
    return found | {
        name: _model.can_read(_graphcore_ops.DOMAIN, each.op_type, 1) for name, each in own.items()
    }
