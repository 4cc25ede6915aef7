"""Callbacks, kernels of Pallas and foreign calls: nothing is known of them but what the user declares."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
from jax import lax
from jax.sharding import PartitionSpec as P

import popsr
from popsr.bridge.jax import from_jax
from popsr.errors import ArgumentTypeError, AttributeValueError, Error, UnknownNameError, UnsupportedOpsError
from tests_py.bridge.jax.cut_rows import CUT, W, X

SHAPE = jax.ShapeDtypeStruct(W.shape, W.dtype)
GRID: dict[str, Any] = {**CUT, "mesh": {"data": 2, "model": 2}}


RAGGED = pytest.mark.skipif(
    "axis_name" not in inspect.signature(getattr(lax, "ragged_all_to_all", print)).parameters,
    reason="needs JAX with ragged_all_to_all over an axis",
)


def on_host(a: Any) -> Any:
    return a


class Host:
    """A function that is an object."""

    def __call__(self, a: Any) -> Any:
        return a


def doubled(source: Any, target: Any) -> None:
    target[...] = source[...] * 2


def pure(a: Any) -> Any:
    return jax.pure_callback(on_host, SHAPE, a)


def of_object(a: Any) -> Any:
    return jax.pure_callback(Host(), SHAPE, a)


def with_effects(a: Any) -> Any:
    from jax.experimental import io_callback

    return io_callback(functools.partial(on_host), SHAPE, a)


def pallas(a: Any) -> Any:
    from jax.experimental import pallas

    return pallas.pallas_call(doubled, out_shape=SHAPE)(a)


def foreign(a: Any) -> Any:
    return jax.ffi.ffi_call("twice", SHAPE)(a)


OPS: dict[str, tuple[Any, str, str]] = {
    "pure_callback": (pure, "on_host", "pure_callback"),
    "an object": (of_object, "Host", "pure_callback"),
    "io_callback": (with_effects, "on_host", "io_callback"),
    "pallas": (pallas, "doubled", "pallas_call"),
    "ffi": (foreign, "twice", "ffi_call"),
}


def step_of(op: Any, varies: bool) -> Any:
    def step(w: Any, x: Any) -> Any:
        return w + op(w * x[:1] if varies else w), lax.pmean(x.sum(), "data")

    return step


def proof_of(op: Any, varies: bool, options: Any = CUT, **opaque: str) -> Any:
    return popsr.prove(step_of(op, varies), W, X, opaque=opaque, **options)


@pytest.mark.parametrize("name", OPS)
def test_without_a_contract_a_step_is_refused_or_its_results_differ_everywhere(name: str) -> None:
    op, _, primitive = OPS[name]
    with pytest.raises(UnsupportedOpsError, match=primitive):
        from_jax(step_of(op, False), W, X, **CUT)
    proof = popsr.prove(step_of(op, False), W, X, unsupported="conservative", **CUT)
    assert [each.path for each in proof.drifting] == ["w"]


@pytest.mark.parametrize("name", OPS)
def test_deterministic_ops_give_equal_results_for_equal_operands(name: str) -> None:
    op, own, primitive = OPS[name]
    for declared in (own, primitive):
        proof = proof_of(op, False, **{declared: "deterministic"})
        assert proof.ok
        assert f"'{declared}' gives equal results for equal operands (opaque=)" in str(proof)
        assert "test_contracts.py:" in str(proof).partition("assumed of ")[2]
        assert not proof_of(op, True, **{declared: "deterministic"}).ok
    with pytest.raises(UnsupportedOpsError, match=primitive):
        proof.step.run()


def test_an_op_that_exchanges_values_itself() -> None:
    assert proof_of(foreign, True, twice="equal over data").ok
    both = {"twice": "equal over data, model"}
    assert proof_of(foreign, True, GRID, **both).ok
    one = proof_of(foreign, True, GRID, twice="equal over data")
    assert [str(each.proved) for each in one.drifting] == ["{0,2}{1,3}"]


def test_a_contract_says_no_more_of_another_op() -> None:
    def step(w: Any, x: Any) -> Any:
        return w + pure(w) + foreign(w), lax.pmean(x.sum(), "data")

    with pytest.raises(UnsupportedOpsError, match="ffi_call"):
        popsr.prove(step, W, X, opaque={"on_host": "deterministic"}, **CUT)


WRONG: dict[str, tuple[Any, type[Error], str]] = {
    "no mapping": ("twice", ArgumentTypeError, "opaque is not a contract by name of an op, got 'twice'"),
    "no name": ({3: "deterministic"}, ArgumentTypeError, "opaque is not a contract by name"),
    "another name": ({"twcie": "deterministic"}, UnknownNameError, r"got 'twcie', expected one of \['twice', "),
    "an op that is read": ({"twice": "deterministic", "mul": "deterministic"}, UnknownNameError, "read, got 'mul'"),
    "a collective": ({"twice": "deterministic", "psum": "deterministic"}, UnknownNameError, "read, got 'psum'"),
    "no contract": ({"twice": "pure"}, AttributeValueError, "opaque of 'twice' says nothing, got 'pure', expected"),
    "no text": ({"twice": True}, AttributeValueError, "opaque of 'twice' says nothing, got True"),
    "another axis": ({"twice": "equal over dat"}, AttributeValueError, r"got 'dat', expected one of \['data'\]"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_contracts(case: str) -> None:
    opaque, kind, text = WRONG[case]
    with pytest.raises(kind, match=text) as error:
        popsr.prove(step_of(foreign, False), W, X, opaque=opaque, **CUT)
    assert "\n" not in str(error.value)


@RAGGED
@pytest.mark.parametrize(("averaged", "ok"), [(True, True), (False, False)])
def test_a_ragged_exchange_is_analysed(averaged: bool, ok: bool) -> None:
    def step(w: Any, x: Any) -> Any:
        sizes = np.full(4, 2, np.int32)
        place = sizes * lax.axis_index("data")
        got = lax.ragged_all_to_all(
            x.reshape(-1),
            w[:2].reshape(-1),
            np.arange(4, dtype=np.int32) * 2,
            sizes,
            place,
            sizes,
            axis_name="data",
        )
        got = lax.pmean(got, "data") if averaged else got
        return w + got.sum(), lax.pmean(x.sum(), "data")

    proof = popsr.prove(step, W, X, **CUT)
    assert proof.ok is ok
    assert not proof.redundant


@RAGGED
def test_a_ragged_exchange_is_equal_where_all_that_is_sent_is() -> None:
    def step(w: Any, x: Any) -> Any:
        sizes = np.full(2, 2, np.int32)
        got = lax.ragged_all_to_all(
            x.reshape(-1), w.reshape(-1), np.arange(2, dtype=np.int32), sizes, sizes, sizes, axis_name="data"
        )
        return w + got.sum(), lax.pmean(x.sum(), "data")

    options = {**GRID, "in_specs": (P("data"), P("data")), "out_specs": (P("data"), P())}
    proof = popsr.prove(step, W, X, **options)
    assert proof.ok
    assert str(proof.states[0].proved) == "{0,1}{2,3}"
