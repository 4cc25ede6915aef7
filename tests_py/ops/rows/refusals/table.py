"""All refusals, by op."""

from __future__ import annotations

import itertools
from collections import defaultdict

from tests_py.ops.rows.refusals import (
    arrangements,
    attention,
    collectives,
    control,
    conv,
    elements,
    elementwise,
    float8,
    host,
    indexing,
    norms,
    pool,
    random,
    reductions,
    resampling,
    shapes,
    updates,
)
from tests_py.ops.rows.refusals.refusal import Refusal

_FAMILIES = (
    arrangements,
    attention,
    collectives,
    control,
    conv,
    elements,
    elementwise,
    float8,
    host,
    indexing,
    norms,
    pool,
    random,
    reductions,
    resampling,
    shapes,
    updates,
)


def refusals_by_op() -> dict[str, tuple[Refusal, ...]]:
    """Refusals of each op, in the order of their tables."""
    by_op = defaultdict(list)
    for refusal in itertools.chain.from_iterable(family.REFUSALS for family in _FAMILIES):
        by_op[refusal.op].append(refusal)
    return {op: tuple(refusals) for op, refusals in by_op.items()}
