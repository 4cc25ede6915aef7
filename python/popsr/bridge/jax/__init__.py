"""Training steps of JAX as programs of popsr.

``from_jax`` traces a function, and appends an op or several for each equation of its jaxpr. Each primitive has a rule,
in the file of its kind; a primitive without one is a gap, which is reported with the line of the user's model.
"""

from popsr._lazy import names_only
from popsr.bridge.jax import (
    bits,
    collectives,
    control,
    elementwise,
    functions,
    indexing,
    linear,
    manual,
    random,
    reduce,
    shape,
    windows,
)
from popsr.bridge.jax.rules import RULES
from popsr.bridge.jax.steps import accepts, from_jax

__all__ = ["accepts", "from_jax", "import_step", "primitives"]

_KINDS = (
    bits,
    collectives,
    control,
    elementwise,
    functions,
    indexing,
    linear,
    manual,
    random,
    reduce,
    shape,
    windows,
)

import_step = from_jax
"""What ``popsr.prove`` calls."""


def primitives() -> dict[str, str]:
    """Names of the primitives that have a rule, with the kind of rule."""
    return {name: RULES[name].module for name in sorted(RULES)}


__dir__ = names_only(__all__)
