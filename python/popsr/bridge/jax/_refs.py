"""References to mutable arrays: JAX's own rules make values of them, before equations are read."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from typing import Any

from popsr._support.text.shown import shown
from popsr.bridge.jax._locations import user_line
from popsr.bridge.jax._rules.calls import jaxprs_inside
from popsr.errors import UnsupportedError

__all__ = ["any_makes_refs", "is_ref", "makes_refs", "with_values", "with_values_inside"]

_MADE_BY = frozenset(["new_ref", "ref", "mutable_array", "empty_ref", "run_state"])


def is_ref(value: Any) -> bool:
    """True for references, and for variables of a jaxpr that stand for one."""
    return type(getattr(value, "aval", None)).__name__ == "AbstractRef"


def makes_refs(jaxpr: Any) -> bool:
    """True if equations of a jaxpr, inner ones aside, make references."""
    return any(equation.primitive.name in _MADE_BY for equation in jaxpr.eqns)


def any_makes_refs(jaxpr: Any) -> bool:
    """True if equations of a jaxpr make references, or those inside of them."""
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    return makes_refs(jaxpr) or any(
        any_makes_refs(inner) for each in jaxpr.eqns for inner in jaxprs_inside(each)
    )


def with_values(closed_jaxpr: Any) -> tuple[Any, list[int]]:
    """A closed jaxpr without references among its own.

    Returns:
        The jaxpr, whose last results are the new values of the arguments that are references, and their positions.
    Raises:
        UnsupportedError: it keeps a reference of its own, or does what JAX has no rule for.
    """
    jaxpr = closed_jaxpr.jaxpr
    refs = [number for number, var in enumerate(jaxpr.invars) if is_ref(var)]
    if any(is_ref(var) for var in jaxpr.constvars):
        raise UnsupportedError(
            f"from_jax: the step writes to a reference that is not its argument{_line(jaxpr)}, got one that it closes "
            "over, expected references as arguments"
        )
    if not refs and not makes_refs(jaxpr):
        return closed_jaxpr, []
    discharge = importlib.import_module("jax._src.state.discharge").discharge_state
    try:
        if "closed_jaxpr" in inspect.signature(discharge).parameters:
            return discharge(closed_jaxpr), refs
        found, consts = discharge(jaxpr, closed_jaxpr.consts)
    except Exception as error:
        raise UnsupportedError(
            f"from_jax: a reference is used in a way that is not read{_line(jaxpr)}, got "
            f"{type(error).__name__}: {shown(str(error).partition(chr(10))[0])}, expected arrays there"
        ) from error
    return _closed(found, consts), refs


def with_values_inside(jaxpr: Any, consts: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Values in place of references in an open jaxpr, with its constants as first arguments."""
    arguments = jaxpr.replace(constvars=[], invars=[*jaxpr.constvars, *jaxpr.invars])
    closed = with_values(_closed(arguments, []))[0]
    return closed.jaxpr, [*consts]


def _closed(jaxpr: Any, consts: Sequence[Any]) -> Any:
    return importlib.import_module("jax.extend.core").ClosedJaxpr(jaxpr, consts)


def _line(jaxpr: Any) -> str:
    """The place of the first equation that has a reference as operand."""
    for equation in jaxpr.eqns:
        if any(is_ref(atom) for atom in equation.invars):
            line = user_line(equation)
            return "" if line is None else f" at {line[0]}:{line[1]}"
    return next(
        (found for equation in jaxpr.eqns for each in jaxprs_inside(equation) if (found := _line(each))), ""
    )
