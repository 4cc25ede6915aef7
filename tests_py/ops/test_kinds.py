"""Kinds of ops that readers of programs ask for are those of ops that there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import popsr
from popsr import _core, ops
from popsr.ops import _kinds as kinds

SCHEMAS: dict[str, Any] = {each["name"]: each for each in _core.op_schemas()}
NAMES = sorted(set(kinds.__all__))
FORMS: dict[str, Any] = {
    "identity": lambda t: ops.identity(t),
    "cast": lambda t: ops.cast(t, popsr.float64),
    "reshape": lambda t: ops.reshape(t, (3, 2)),
    "transpose": lambda t: ops.transpose(t),
    "squeeze": lambda t: ops.squeeze(ops.reshape(t, (1, 2, 3))),
    "flatten": lambda t: ops.flatten(t),
    "expand": lambda t: ops.expand(t, (2, 2, 3)),
}


@pytest.mark.parametrize("kind", NAMES)
def test_each_is_an_op(kind: str) -> None:
    assert getattr(kinds, kind) <= SCHEMAS.keys()


@pytest.mark.parametrize("name", sorted(kinds.MOVES))
def test_moves_keep_elements(name: str) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        made = FORMS[name](popsr.variable(values, name="t"))
        stream = popsr.d2h_stream(made.shape, made.dtype, "made")
        ops.host_store(stream, made)
    with popsr.Session(ir) as session:
        found = session.run()[stream]
    assert set(np.unique(found)) == set(np.unique(values))


def test_reductions_are_collectives() -> None:
    assert all(SCHEMAS[name]["collective"] for name in kinds.REDUCTIONS)
    assert not any(SCHEMAS[name]["collective"] for name in kinds.MOVES | kinds.POINTWISE)
