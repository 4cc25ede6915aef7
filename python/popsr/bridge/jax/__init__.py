"""Training steps of JAX as programs of popsr.

``from_jax`` traces a function, and appends an op or several for each equation of its jaxpr. Each primitive has a rule,
in the file of its kind; a primitive without one is a gap, which is reported with the line of the user's model.
"""

from popsr._support.lazy import names_only
from popsr._support.text.entry_points import public
from popsr.bridge.jax import _manual  # noqa: F401 - they register their rules
from popsr.bridge.jax._rules import bits as _bits  # noqa: F401 - they register their rules
from popsr.bridge.jax._rules import collectives as _collectives  # noqa: F401 - they register their rules
from popsr.bridge.jax._rules import control as _control  # noqa: F401 - they register their rules
from popsr.bridge.jax._rules import elementwise as _elementwise  # noqa: F401 - they register their rules
from popsr.bridge.jax._rules import indexing as _indexing  # noqa: F401 - they register their rules
from popsr.bridge.jax._rules import linear as _linear  # noqa: F401 - they register their rules
from popsr.bridge.jax._rules import random as _random  # noqa: F401 - they register their rules
from popsr.bridge.jax._rules import reduce as _reduce  # noqa: F401 - they register their rules
from popsr.bridge.jax._rules import shape as _shape  # noqa: F401 - they register their rules
from popsr.bridge.jax._rules import windows as _windows  # noqa: F401 - they register their rules
from popsr.bridge.jax._rules.table import RULES
from popsr.bridge.jax._steps import accepts, from_jax

__all__ = ["accepts", "from_jax", "import_step", "primitives"]

import_step = from_jax
"""The name that ``popsr.prove`` calls."""


@public
def primitives() -> dict[str, str]:
    """Names of the primitives that have a rule, with the kind of rule."""
    return {name: RULES[name].module for name in sorted(RULES)}


__dir__ = names_only(__all__)
