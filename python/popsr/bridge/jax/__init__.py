"""Training steps of JAX as programs of popsr.

``from_jax`` traces a function, and appends an op or several for each equation of its jaxpr. Each primitive has a rule,
in the file of its kind; a primitive without one is a gap, which is reported with the line of the user's model.
"""

from popsr._lazy import names_only
from popsr._text.entry_points import add_entry_points
from popsr.bridge.jax import (  # noqa: F401 - they register their rules
    _bits,
    _collectives,
    _control,
    _elementwise,
    _indexing,
    _linear,
    _manual,
    _random,
    _reduce,
    _shape,
    _windows,
)
from popsr.bridge.jax._rules import RULES
from popsr.bridge.jax._steps import accepts, from_jax

__all__ = ["accepts", "from_jax", "import_step", "primitives"]

import_step = from_jax
"""The name that ``popsr.prove`` calls."""


def primitives() -> dict[str, str]:
    """Names of the primitives that have a rule, with the kind of rule."""
    return {name: RULES[name].module for name in sorted(RULES)}


__dir__ = names_only(__all__)
add_entry_points(__name__)
