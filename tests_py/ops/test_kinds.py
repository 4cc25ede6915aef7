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
    "detach": lambda t: ops.detach(t),
    "ipu_copy": lambda t: ops.ipu_copy(ops.ipu_copy(t, 1, 0), 0),
    "io_tile_copy": lambda t: ops.io_tile_copy(ops.io_tile_copy(t)),
}
W = np.array([[1, -2, 4], [0.5, 8, -1]], np.float32)
LINEAR_FORMS: dict[str, Any] = {  # in the operand that is given
    "accumulate_": lambda t: ops.var_updates.accumulate_(popsr.variable(W), t),
    "add": lambda t: t + popsr.constant(W),
    "add_": lambda t: ops.add_(popsr.variable(W), t),
    "concat": lambda t: ops.concat([t, popsr.constant(W)]),
    "copy_var_update_": lambda t: ops.var_updates.copy_var_update_(popsr.variable(W), t),
    "div": lambda t: t / popsr.constant(W),
    "matmul": lambda t: t @ popsr.constant(W.T),
    "mean": lambda t: ops.mean(ops.concat([t, t[:, :1]], 1), 1),
    "mul": lambda t: t * popsr.constant(W),
    "negate": lambda t: -t,
    "pad": lambda t: ops.pad(t, (1, 0), (0, 2)),
    "scaled_add": lambda t: ops.scaled_add(t, popsr.constant(W), a=2.0, b=0.5),
    "slice": lambda t: t[:, 1:],
    "sub": lambda t: popsr.constant(W) - t,
    "sum": lambda t: ops.sum(t, 0),
    "where": lambda t: ops.where(popsr.constant(W > 0), t, popsr.constant(W)),
}


@pytest.mark.parametrize("kind", NAMES)
def test_each_is_an_op(kind: str) -> None:
    assert getattr(kinds, kind) <= SCHEMAS.keys()


def _run(form: Any, values: np.ndarray[Any, Any]) -> Any:
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        made = form(popsr.variable(values, name="t"))
        stream = popsr.d2h_stream(made.shape, made.dtype, "made")
        ops.host_store(stream, made)
    with popsr.Session(ir) as session:
        return session.run()[stream]


def _public(names: frozenset[str]) -> set[str]:
    return {name for name in names if not SCHEMAS[name]["internal"] and not SCHEMAS[name]["collective"]}


def test_moves_have_a_form() -> None:
    assert _public(kinds.MOVES) == FORMS.keys()


def test_linear_ops_have_a_form() -> None:
    others = {name for name in _public(kinds.LINEAR - kinds.MOVES) if not name.startswith("conv")}
    assert {name.rstrip("_") for name in others} == {name.rstrip("_") for name in LINEAR_FORMS}


@pytest.mark.parametrize("name", LINEAR_FORMS)
def test_linear_ops_are_linear(name: str) -> None:
    """A linear op has f(x + d) - f(x) = f(d) - f(0), for numbers that are not rounded."""
    x, d = np.arange(12, dtype=np.float32).reshape(2, 2, 3) * 4 - 8
    at, both, of_d, of_0 = (_run(LINEAR_FORMS[name], each) for each in (x, x + d, d, np.zeros_like(x)))
    np.testing.assert_array_equal(both - at, of_d - of_0)
    assert np.any(of_d - of_0)


@pytest.mark.parametrize("name", sorted(FORMS))
def test_moves_keep_elements(name: str) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
    assert set(np.unique(_run(FORMS[name], values))) == set(np.unique(values))


def test_reductions_are_collectives() -> None:
    assert all(SCHEMAS[name]["collective"] for name in kinds.REDUCTIONS)
    assert all(SCHEMAS[name]["collective"] for name in kinds.EXCHANGES)
    assert not any(SCHEMAS[name]["collective"] for name in kinds.POINTWISE - kinds.MOVES)


def test_updates_are_pointwise() -> None:
    """The registry says so, but for a square."""
    others = kinds.MOVES | {"conditional", "square"}
    assert all(SCHEMAS[name]["pointwise"] for name in (kinds.POINTWISE | kinds.ELEMENTWISE) - others)
