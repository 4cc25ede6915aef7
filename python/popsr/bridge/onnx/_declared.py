"""Types and shapes that a graph or function declares for its values, beside those that are computed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from popsr._support.text.shown import shown
from popsr.bridge.onnx._node import Value
from popsr.bridge.onnx._rules import MisfitError
from popsr.bridge.onnx._schemas import shape_in, type_of
from popsr.bridge.onnx._types import type_text
from popsr.errors import DTypeError, ShapeError

__all__ = ["Declared"]


class Declared:
    """Declared types of the values of a graph, and what of them holds: a name of an extent says no number.

    Args:
        infos: messages of ``ValueInfoProto``.
        ranks: their ranks; those of a loop's body are of one pass.
        extents: their extents; the user may give inputs other shapes than the model declares.
    """

    def __init__(self, *infos: Iterable[Any], ranks: bool = True, extents: bool = True) -> None:
        """Keep the types of tensors, and of sequences of them."""
        self._types = {
            each.name: each.type
            for some in infos
            for each in some
            if each.name and each.type.WhichOneof("value") in ("tensor_type", "sequence_type")
        }
        self._ranks, self._extents = ranks, extents

    def check(self, name: str, value: Value) -> None:
        """Refuse a value that is another than the model declares.

        Raises:
            MisfitError: its element type, its rank or its extents are others.
        """
        given = self._types.get(name)
        if given is None:
            return
        kind, wanted = type_of(value), _type(given)
        if kind is not None and wanted is not None and kind != wanted:
            raise MisfitError(
                f"has a value of another type than the model declares, got {kind} for {shown(name)}, expected {wanted}",
                DTypeError,
            )
        shape = shape_in(value)
        if not self._ranks or shape is None or not _has_shape(given):
            return
        dims = [
            each.dim_value if each.HasField("dim_value") else None for each in given.tensor_type.shape.dim
        ]
        pairs = zip(dims, shape, strict=False) if self._extents else ()
        if len(dims) != len(shape) or any(n is not None and n != have for n, have in pairs):
            raise MisfitError(
                f"has a value of another shape than the model declares, got {shape} for {shown(name)}, expected "
                f"{shown(dims)}",
                ShapeError,
            )


def _has_shape(given: Any) -> bool:
    return given.WhichOneof("value") == "tensor_type" and bool(given.tensor_type.HasField("shape"))


def _type(given: Any) -> str | None:
    """A declared type as ONNX writes it; None of one that says no element type."""
    if given.WhichOneof("value") == "sequence_type":
        inner = _type(given.sequence_type.elem_type)
        return None if inner is None else f"seq({inner})"
    if given.WhichOneof("value") != "tensor_type" or not given.tensor_type.elem_type:
        return None
    return f"tensor({type_text(given.tensor_type.elem_type)})"
