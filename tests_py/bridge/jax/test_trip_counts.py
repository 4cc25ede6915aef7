"""Trip counts that follow from the text of a loop, beside loops that run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
from jax import lax

from popsr.bridge.jax._sizes.trip_counts import trip_count

COMPARE: dict[str, Any] = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "ne": lambda a, b: a != b,
}


def found(compare: str, start: int, step: int, stop: int, mirrored: bool) -> int | None:
    def cond(c: Any) -> Any:
        other = np.int32(stop)
        return COMPARE[compare](other, c[0]) if mirrored else COMPARE[compare](c[0], other)

    jaxpr = jax.make_jaxpr(
        lambda x: lax.while_loop(cond, lambda c: (c[0] + step, c[1] * 2), (np.int32(start), x))
    )
    (equation,) = jaxpr(1.0).jaxpr.eqns
    params = equation.params
    carry = [np.asarray(v.val) if hasattr(v, "val") else object() for v in equation.invars]
    return trip_count(params["cond_jaxpr"], params["body_jaxpr"], [], [], carry)


@pytest.mark.parametrize("compare", COMPARE)
@pytest.mark.parametrize("mirrored", [False, True])
def test_counts(compare: str, mirrored: bool) -> None:
    for start in (-4, 0, 3):
        for stop in (-5, 0, 1, 7):
            for step in (-3, -1, 1, 2):
                at, passes = start, 0
                while passes < 100 and (
                    COMPARE[compare](stop, at) if mirrored else COMPARE[compare](at, stop)
                ):
                    at, passes = at + step, passes + 1
                assert found(compare, start, step, stop, mirrored) == (None if passes == 100 else passes)


def test_a_bound_that_is_data() -> None:
    jaxpr = jax.make_jaxpr(
        lambda n: lax.while_loop(lambda c: c[0] < c[1], lambda c: (c[0] + 1, c[1]), (0, n))
    )(3)
    (equation,) = jaxpr.jaxpr.eqns
    params = equation.params
    carry = [np.asarray(v.val) if hasattr(v, "val") else object() for v in equation.invars]
    assert trip_count(params["cond_jaxpr"], params["body_jaxpr"], [], [], carry) is None
