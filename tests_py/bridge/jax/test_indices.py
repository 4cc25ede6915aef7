"""Integers that follow from indices of devices are known for each replica: exact partitions, and JAX's values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

import popsr
from popsr.bridge.jax import from_jax
from tests_py.bridge.jax.compare import devices

GRID = {"a": 2, "b": 4}
X = np.arange(32, dtype=np.float32).reshape(8, 4)
ALL, EACH, EVEN = "{0,1,2,3,4,5,6,7}", "{0}{1}{2}{3}{4}{5}{6}{7}", "{0,2,4,6}{1,3,5,7}"
FIRST, PAIRS = "{0,1,2,3}{4,5,6,7}", "{0,1}{2,3}{4,5}{6,7}"


def number() -> Any:
    return lax.axis_index(("a", "b"))


CASES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "index": (lambda x: number(), EACH),
    "along one axis": (lambda x: lax.axis_index("a"), FIRST),
    "along the other": (lambda x: lax.axis_index("b"), "{0,4}{1,5}{2,6}{3,7}"),
    "in another order": (lambda x: lax.axis_index(("b", "a")), EACH),
    "parity": (lambda x: number() % 2, EVEN),
    "pairs": (lambda x: number() // 2, PAIRS),
    "bits": (lambda x: (number() >> 1) & 1, "{0,1,4,5}{2,3,6,7}"),
    "times zero": (lambda x: number() * 0, ALL),
    "overflow of eight bits": (lambda x: number().astype(jnp.int8) * np.int8(64), "{0,4}{1,5}{2,6}{3,7}"),
    "shifted out": (lambda x: (number() << 31) >> 31, EVEN),
    "beyond the last": (lambda x: jnp.where(number() >= 8, x[0, 0], 1.0), ALL),
    "a condition": (lambda x: jnp.where(number() % 2 == 0, 1.0, 2.0), EVEN),
    "a branch": (lambda x: lax.cond(number() % 2 == 0, lambda: 1.5, lambda: 2.5), EVEN),
    "a branch in a loop": (
        lambda x: lax.fori_loop(0, 3, lambda i, c: lax.cond(number() < 4, lambda: c + i, lambda: c), 0),
        FIRST,
    ),
    "a counter of a loop": (lambda x: lax.fori_loop(0, number() // 4 + 1, lambda i, c: c + i, 0), FIRST),
    "a row of a table": (lambda x: jnp.arange(8)[number() // 2], PAIRS),
    "random bits": (lambda x: jax.random.bits(jax.random.fold_in(jax.random.key(0), number() // 4)), FIRST),
    "unequal groups": (
        lambda x: jnp.where(number() == 0, 1, 2),
        EACH,
    ),  # groups have one size: less is proved
    "groups of two and six": (lambda x: jnp.where(number() < 2, 1, 2), PAIRS),
    "a sum": (lambda x: lax.psum(number() % 2, "b"), ALL),
}


@pytest.mark.parametrize("case", CASES)
def test_index(case: str) -> None:
    function, want = CASES[case]

    def mapped(x: Any) -> Any:
        return jnp.broadcast_to(function(x), (1,))

    specs: dict[str, Any] = {"in_specs": P("a"), "out_specs": P(("a", "b")), "check_vma": False}
    step = from_jax(mapped, X, mesh=GRID, roles={}, updates={}, **specs)
    assert not step.gaps
    partition = popsr.analysis.analyze(step.ir).partition(step.results[0].tensor)
    assert str(partition) == want
    theirs = np.asarray(jax.jit(jax.shard_map(mapped, mesh=devices(GRID), **specs))(X))
    step.restart(check=True)
    mine = step.run()["result"]
    assert (mine.dtype, mine.tobytes()) == (theirs.dtype, theirs.tobytes())
