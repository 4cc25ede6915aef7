"""Primitives that call a jaxpr as part of the caller, and jaxprs inside of equations."""

from collections.abc import Iterator
from typing import Any

__all__ = ["CALLED", "PLACED", "RUN_ONCE", "jaxprs_inside", "name_of"]

CALLED = {
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "remat2": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "custom_vmap_call": "call",
    "composite": "jaxpr",
}
"""The parameter with the jaxpr that a call runs."""

RUN_ONCE = {**CALLED, "shard_map": "jaxpr", "checkpoint": "jaxpr", "remat": "jaxpr"}
"""The parameter with the jaxpr that an equation runs once, with its own operands and results."""

PLACED = ("sharding_constraint", "reshard", "layout_constraint", "device_put")
"""Primitives that say where arrays lie, and change no value."""


_OLDER = {"mesh_cast": "reshard", "pbroadcast": "pvary", "pjit": "jit", "psum2": "psum_invariant"}
"""Names in older versions of JAX, and those of now."""


def name_of(equation: Any) -> str:
    """The name of an equation's primitive in the newest version of JAX, in which ``pbroadcast`` has a source."""
    name = str(equation.primitive.name)
    return name if "source" in equation.params else _OLDER.get(name, name)


def jaxprs_inside(equation: Any) -> Iterator[Any]:
    """The open jaxprs that an equation has as parameters."""
    for parameter in equation.params.values():
        for each in parameter if isinstance(parameter, (tuple, list)) else [parameter]:
            jaxpr = getattr(each, "jaxpr", each)
            if hasattr(jaxpr, "eqns"):
                yield jaxpr
