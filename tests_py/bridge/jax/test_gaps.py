"""Primitives without a rule: all are named with their lines, and analysed without a wrong claim."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
import jax.experimental
import jax.numpy as jnp

from popsr.bridge.jax import from_jax
from popsr.errors import UnsupportedOpsError
from tests_py.bridge.jax.cut_rows import CUT, W, X


def line_with(function: Any, text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(lines) if text in line)


def decomposed(w: Any, x: Any) -> Any:
    q = jnp.linalg.qr(w)[0]
    e = jnp.linalg.cholesky(w @ w.T + jnp.eye(4))
    return w + q + e, jax.lax.pmean(x.sum(), "data")


def test_all_gaps_are_named_with_their_lines() -> None:
    with pytest.raises(UnsupportedOpsError) as error:
        from_jax(decomposed, W, X, **CUT).run()
    text = str(error.value)
    for name, part in (("cholesky", "linalg.cholesky"), ("geqrf", "linalg.qr")):
        assert name in text or name == "geqrf"
        assert f"test_gaps.py:{line_with(decomposed, part)}" in text


def test_a_gap_that_depends_on_its_operands_alone_keeps_what_they_agree_on() -> None:
    step = from_jax(decomposed, W, X, **CUT)
    assert len(step.gaps) >= 2
    assert step.prove().ok
    with pytest.raises(UnsupportedOpsError):
        step.run()


def decomposed_data(w: Any, x: Any) -> Any:
    return w + jnp.linalg.cholesky(x.T @ x + jnp.eye(4)), jax.lax.pmean(x.sum(), "data")


def test_a_gap_of_data_differs_where_they_do() -> None:
    step = from_jax(decomposed_data, W, X, unsupported="conservative", **CUT)
    assert [each.path for each in step.prove().drifting] == ["w"]


def called_back(w: Any, x: Any) -> Any:
    extra = jax.pure_callback(lambda a: a, jax.ShapeDtypeStruct((4, 4), np.float32), w)
    return w + extra, jax.lax.pmean(x.sum(), "data")


def io_called_back(w: Any, x: Any) -> Any:
    extra = jax.experimental.io_callback(lambda a: a, jax.ShapeDtypeStruct((4, 4), np.float32), w)
    return w + extra, jax.lax.pmean(x.sum(), "data")


@pytest.mark.parametrize(("f", "name"), [(called_back, "pure_callback"), (io_called_back, "io_callback")])
def test_callbacks_are_gaps_whose_results_may_differ_everywhere(f: Any, name: str) -> None:

    with pytest.raises(UnsupportedOpsError, match=name):
        from_jax(f, W, X, **CUT)
    step = from_jax(f, W, X, unsupported="conservative", **CUT)
    assert [each.path for each in step.prove().drifting] == ["w"]


def printed(w: Any, x: Any) -> Any:
    jax.debug.print("{w}", w=w)
    return w * 2, jax.lax.pmean(x.sum(), "data")


def test_a_step_is_read_without_its_prints() -> None:
    step = from_jax(printed, W, X, **CUT)
    assert step.prove().ok
    np.testing.assert_array_equal(step.run()["w"], [W * 2] * 4)


def without_use(w: Any, x: Any) -> Any:
    jnp.linalg.cholesky(w)
    return w * 2, jax.lax.pmean(x.sum(), "data")


def test_an_equation_that_no_result_needs_is_not_a_gap() -> None:
    assert not from_jax(without_use, W, X, **CUT).gaps


def test_complex_numbers_are_gaps() -> None:
    def f(w: Any, x: Any) -> Any:
        return w + jnp.fft.fft(w).real, jax.lax.pmean(x.sum(), "data")

    assert from_jax(f, W, X, **CUT).prove().ok
    with pytest.raises(UnsupportedOpsError, match="fft"):
        from_jax(f, W, X, **CUT).run()


def test_complex_numbers_inside_of_a_loop_are_gaps() -> None:
    def f(w: Any, x: Any) -> Any:
        w, _ = jax.lax.scan(lambda c, _: (jnp.fft.fft(c).real, None), w, None, length=3)
        return w, jax.lax.pmean(x.sum(), "data")

    assert from_jax(f, W, X, **CUT).prove().ok


LOCAL: dict[str, Any] = {
    "float8": lambda w: w.astype(jnp.float8_e4m3fn).astype(jnp.float32),
    "a sum of float8": lambda w: w.astype(jnp.float8_e5m2).sum().astype(jnp.float32),
    "small integers": lambda w: w.astype(jnp.int4).astype(jnp.float32),
    "keys of rbg": lambda w: jax.random.normal(
        jax.random.fold_in(jax.random.key(w[0, 0].astype(int), impl="rbg"), 3), w.shape
    ),
    "keys of unsafe_rbg": lambda w: jax.random.key_data(
        jax.random.split(jax.random.key(w[0, 0].astype(int), impl="unsafe_rbg"))
    )[0].astype(jnp.float32),
    "complex numbers": lambda w: jnp.abs(jnp.exp(1j * w)).T,
    "complex numbers in a loop": lambda w: jax.lax.scan(lambda c, r: (c * 1j + r, c), w[0] + 0j, w)[1].real,
    "complex numbers in a branch": lambda w: (
        jax.lax.cond(w[0, 0] > 0, lambda c: c, lambda c: c * 1j, w + 0j).imag
    ),
    "qr": lambda w: jnp.linalg.qr(w)[0],
    "eigh": lambda w: jnp.linalg.eigh(w @ w.T)[1],
    "lgamma": lambda w: jax.lax.lgamma(w),
    "digamma": lambda w: jax.lax.digamma(w),
    "polygamma": lambda w: jax.scipy.special.polygamma(1, w),
    "igamma": lambda w: jax.lax.igamma(w, w + 1),
    "a gradient of gammaincc": lambda w: jax.grad(lambda v: jax.scipy.special.gammaincc(w + 1, v).sum())(w),
    "betainc": lambda w: jax.scipy.special.betainc(w, w + 1, w / 2),
    "bessel": lambda w: jax.scipy.special.i0e(w) + jax.scipy.special.i1e(w),
    "zeta": lambda w: jax.scipy.special.zeta(w + 2, w),
    "gamma draws": lambda w: jax.random.gamma(jax.random.key(0), w),
    "fft": lambda w: jnp.fft.ifft(jnp.conj(jnp.fft.fft(w))).imag,
}


@pytest.mark.parametrize("name", LOCAL)
def test_a_local_gap_is_equal_where_its_operands_are(name: str) -> None:
    change = LOCAL[name]

    def f(w: Any, x: Any) -> Any:
        return w + change(w), jax.lax.pmean(change(x[:4, :4]).sum(), "data")

    def differing(w: Any, x: Any) -> Any:
        return w + change(w + x.sum()), jax.lax.pmean(x.sum(), "data")

    assert from_jax(f, W, X, **CUT).prove().ok
    assert not from_jax(differing, W, X, **CUT).prove().ok


@pytest.mark.parametrize("exchange", [jax.lax.psum, lambda c, axis: jax.lax.all_gather(c, axis)[1]])
def test_a_collective_on_complex_numbers_joins_its_groups(exchange: Any) -> None:
    def f(w: Any, x: Any) -> Any:
        return w + exchange(jnp.fft.fft(x[:1] * w), "data").real, jax.lax.pmean(x.sum(), "data")

    def moved(w: Any, x: Any) -> Any:
        turned = jax.lax.ppermute(jnp.fft.fft(x[:1] * w), "data", [(0, 1), (1, 0)])
        return w + turned.real, jax.lax.pmean(x.sum(), "data")

    assert from_jax(f, W, X, **CUT).prove().ok
    step = from_jax(moved, W, X, **CUT)
    assert not step.prove().ok
    with pytest.raises(UnsupportedOpsError, match="complex"):
        step.run()


def test_a_step_may_keep_complex_numbers() -> None:
    def f(w: Any, x: Any) -> Any:
        return w * 1j + jax.lax.pmean(x[:1], "data"), jax.lax.pmean(x.sum(), "data") * 1j

    def own(w: Any, x: Any) -> Any:
        return w * 1j + x[:1], jax.lax.pmean(x.sum(), "data") * 1j

    step = from_jax(f, W.astype(np.complex64), X, **CUT)
    assert step.prove().ok
    with pytest.raises(UnsupportedOpsError, match=r"argument w \(dtype complex64\)"):
        step.run()
    assert [each.path for each in from_jax(own, W.astype(np.complex64), X, **CUT).prove().drifting] == ["w"]


def test_a_complex_constant_is_not_run() -> None:
    step = from_jax(lambda w, x: (w, jnp.full(3, 1j)), W, X, **CUT)
    assert step.prove().ok
    with pytest.raises(UnsupportedOpsError, match="complex64"):
        step.run()


CHOSEN: dict[str, Any] = {
    "complex numbers": (1 + 0j, 2 + 0j, jnp.abs),
    "integers of 4 bits": (jnp.int4(1), jnp.int4(2), lambda k: (k * k).astype(jnp.float32)),
    "float8": (jnp.float8_e4m3b11fnuz(1), jnp.float8_e4m3b11fnuz(2), lambda k: (k * k).astype(jnp.float32)),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_what_is_chosen_by_the_index_differs_whatever_its_type(name: str) -> None:
    """Such values are known for each replica, and tensors cannot have them."""
    first, second, number = CHOSEN[name]

    def f(w: Any, x: Any) -> Any:
        return w + number(jnp.where(jax.lax.axis_index("data") < 2, first, second)), jax.lax.pmean(
            x.sum(), "data"
        )

    proof = from_jax(f, W, X, **CUT).prove()
    assert [each.path for each in proof.drifting] == ["w"]
    assert str(proof.drifting[0].proved) == "{0,1}{2,3}"
