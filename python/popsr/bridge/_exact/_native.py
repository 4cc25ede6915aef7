"""Ops on arrays by their own kernels: programs of one op, which are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from popsr import _core
from popsr._program.building.append import tensor
from popsr._program.building.emit import emit_op
from popsr._program.ir import Ir
from popsr._program.streams import d2h_stream, h2d_stream
from popsr._session.session import Session
from popsr._support.fields import Array
from popsr._support.records import OpSchema
from popsr.dtypes import dtype
from popsr.ops.program.host_io import host_load, host_store

__all__ = ["SCHEMAS", "run_op"]

SCHEMAS: dict[str, OpSchema] = {schema["name"]: schema for schema in _core.op_schemas()}


class _Compiled:
    """A program of one op, with a stream for each operand and result."""

    def __init__(self, kind: str, attributes: dict[str, Any], operands: Sequence[Array | None]) -> None:
        self.ir = Ir(1)
        self.given: list[Any] = []
        with self.ir.main_graph:
            loaded = [None if each is None else self._load(each) for each in operands]
            _, results = emit_op(kind, _named(kind, loaded), attributes)
            self.stored = [d2h_stream(t.shape, t.dtype) for t in results]
            for stream, t in zip(self.stored, results, strict=True):
                host_store(stream, t)
        self.session = Session(self.ir)

    def _load(self, operand: Array) -> Any:
        self.given.append(
            h2d_stream(operand.shape, dtype.as_dtype(operand.dtype), f"operand{len(self.given)}")
        )
        return host_load(self.given[-1])

    def __call__(self, operands: Sequence[Array]) -> list[Array]:
        with self.session:
            found = self.session.run(dict(zip(self.given, operands, strict=True)))
        return [np.asarray(found[stream]) for stream in self.stored]


def _named(kind: str, tensors: Sequence[Any]) -> dict[str, Any]:
    """Operands by their names in the definition."""
    named: dict[str, Any] = {}
    rest = list(tensors)
    for each in SCHEMAS[kind]["inputs"]:
        if each["variadic"]:
            named[each["name"]], rest = rest, []
        else:
            named[each["name"]] = tensor(rest.pop(0) if rest else None)
    return named


_KNOWN: dict[Any, _Compiled] = {}
_MOST = 512


def run_op(kind: str, attributes: dict[str, Any], operands: Sequence[Array | None]) -> list[Array]:
    """The results of an op on arrays of one replica."""
    arrays = [None if each is None else np.asarray(each, order="C") for each in operands]
    types = tuple(None if each is None else (each.dtype.str, each.shape) for each in arrays)
    key = (kind, repr(sorted(attributes.items())), types)
    if key not in _KNOWN:
        if len(_KNOWN) >= _MOST:
            _KNOWN.clear()
        _KNOWN[key] = _Compiled(kind, attributes, arrays)
    return _KNOWN[key]([each for each in arrays if each is not None])
