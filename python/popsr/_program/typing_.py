"""Annotations that mean something to ``Ir.create_graph``."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar, cast

from popsr._support.host.arguments import read_text
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError

__all__ = ["NewAliasAnnotation", "T"]

T = TypeVar("T")


@public
def NewAliasAnnotation(name: str, tp: T) -> T:  # noqa: N802 - PopXL's name
    """Another name of a type that can be told apart from it in annotations.

    Args:
        name: the name.
        tp: the type; type checkers take the result for it.
    Returns:
        The type, annotated with the name: aliases of one type and name are equal.
    """
    read_text("NewAliasAnnotation: name", name)
    if not isinstance(tp, type) and not hasattr(type(tp), "__origin__"):
        raise ArgumentTypeError(f"NewAliasAnnotation: tp is not a type, got {shown(tp)}, expected a type")
    return cast(T, Annotated[cast(Any, tp), name])
