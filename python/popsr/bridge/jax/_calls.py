"""Primitives that call a jaxpr as part of the caller, and jaxprs inside of equations."""

from collections.abc import Iterator
from typing import Any

__all__ = ["CALLED", "PLACED", "jaxprs_inside"]

CALLED = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "remat2": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "custom_vmap_call": "call",
    "composite": "jaxpr",
}
"""The parameter with the jaxpr that a call runs."""


PLACED = ("sharding_constraint", "reshard", "mesh_cast", "layout_constraint", "device_put")
"""Primitives that say where arrays lie, and change no value."""


def jaxprs_inside(equation: Any) -> Iterator[Any]:
    """The open jaxprs that an equation has as parameters."""
    for parameter in equation.params.values():
        for each in parameter if isinstance(parameter, (tuple, list)) else [parameter]:
            jaxpr = getattr(each, "jaxpr", each)
            if hasattr(jaxpr, "eqns"):
                yield jaxpr
