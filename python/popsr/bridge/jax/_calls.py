"""Primitives that call a jaxpr as part of the caller."""

__all__ = ["CALLED"]

CALLED = {
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "remat2": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vmap_call": "call",
    "composite": "jaxpr",
}
"""The parameter with the jaxpr that a call runs."""
