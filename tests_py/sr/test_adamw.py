"""``adamw_`` and the optimiser for torch: values against the formula, coins against their numbers."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from popsr import sr
from tests_py.sr.cases import NAMES, np_dtype, to_bits
from tests_py.support.oracles import rounding as oracle
from tests_py.support.unchecked import unchecked

BF16 = ml_dtypes.bfloat16
OPTIONS = {"lr": 0.02, "betas": (0.9, 0.99), "eps": 1e-6, "weight_decay": 0.1}


def state(name: Any, moment: Any, n: Any = 500, seed: Any = 0) -> Any:
    rng = np.random.default_rng(seed)
    w, g = (rng.standard_normal(n).astype(np_dtype(name)) for _ in range(2))
    return w, g, np.zeros(n, np_dtype(moment)), np.zeros(n, np_dtype(moment))


def by_hand(
    w: Any, g: Any, m: Any, v: Any, step: Any, lr: Any, betas: Any, eps: Any, weight_decay: Any
) -> Any:
    """In long double."""
    w, g, m, v = (a.astype(np.float64).astype(np.longdouble) for a in (w, g, m, v))
    m = betas[0] * m + (1 - betas[0]) * g
    v = betas[1] * v + (1 - betas[1]) * g * g
    unbiased = m / (1 - betas[0] ** step), v / (1 - betas[1] ** step)
    u = -lr * (weight_decay * w + unbiased[0] / (np.sqrt(unbiased[1]) + eps))
    return u, m, v


@pytest.mark.parametrize("name", ["float64", "float32"])
def test_wide_weights_follow_the_formula(name: Any) -> None:
    w, g, m, v = state(name, name)
    tolerance = 1e-12 if name == "float64" else 1e-5
    rng = np.random.default_rng(1)
    for step in range(1, 20):
        g[:] = rng.standard_normal(len(g))
        u, m_expect, v_expect = by_hand(w, g, m, v, step, **OPTIONS)
        before = w.astype(np.longdouble)
        assert unchecked(sr.adamw_)(w, g, m, v, key=sr.Key(1), step=step, **OPTIONS) is w
        np.testing.assert_allclose(m, m_expect, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(v, v_expect, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(w, before + u, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("moment", ["float32", "float64"])
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("float64", "float32")])
def test_narrow_weights_are_neighbours_decided_by_their_numbers(name: Any, moment: Any) -> None:
    """The update is known up to the rounding of fp32: only where that leaves the decision open may it differ."""
    w, g, m, v = state(name, moment)
    if not oracle.FORMATS[name].negative_zero:
        w = np.where(w == 0, np.zeros_like(w), w)
    key, open_cases, moved = sr.Key(3).fold_in("w"), 0, 0
    for step in range(1, 6):
        u, m_expect, _ = by_hand(w, g, m, v, step, **OPTIONS)
        before = w.astype(np.float64)
        total = [float(a) + float(b) for a, b in zip(before, u, strict=True)]
        unchecked(sr.adamw_)(w, g, m, v, key=key, step=step, **OPTIONS)
        np.testing.assert_allclose(m.astype(np.float64), m_expect.astype(np.float64), rtol=1e-5, atol=1e-6)
        us = sr.uniform_bits(key.at(step), len(w)).tolist()
        for s, update, number, got in zip(total, u, us, to_bits(w, name), strict=True):
            slack = abs(float(update)) * 2e-6
            allowed = {oracle.round_bits(oracle.number(t), name, u=number) for t in (s - slack, s, s + slack)}
            assert got in allowed
            open_cases += len(allowed) > 1
        moved += int(np.sum(w.astype(np.float64) != before))
    assert open_cases < 20
    assert moved > 500


@pytest.mark.parametrize("moment", ["bfloat16", "float16", "float8_e5m2"])
def test_narrow_moments_are_rounded_stochastically(moment: Any) -> None:
    """1 - beta2 is far below the spacing: to nearest v would stand still; here its mean follows the formula."""
    n = 20_000
    w, g = np.zeros(n, np.float32), np.full(n, 0.75, np.float32)
    m, v = (np.zeros(n, np_dtype(moment)) for _ in range(2))
    exact_m = exact_v = 0.0
    for step in range(1, 26):
        sr.adamw_(w, g, m, v, key=sr.Key(5), step=step, lr=1e-3, betas=(0.9, 0.999))
        exact_m, exact_v = 0.9 * exact_m + 0.1 * 0.75, 0.999 * exact_v + 0.001 * 0.75**2
    for got, exact in ((m, exact_m), (v, exact_v)):
        got = got.astype(np.float64)
        assert abs(got.mean() - exact) < 5 * got.std() / math.sqrt(n)
        assert got.std() > 0


def test_steps_draw_for_themselves() -> None:
    """The same key at two steps, with the same update, moves other weights."""
    moved = []
    for step in (1, 2):
        w, g = np.ones(4000, BF16), np.ones(4000, np.float32)
        m, v = np.full(4000, 1.0, np.float32), np.full(4000, 1.0, np.float32)
        sr.adamw_(w, g, m, v, key=sr.Key(1), step=step, lr=1e-3, betas=(0.0, 0.0), weight_decay=0.0)
        moved.append(w != 1)
    assert 0.1 < np.mean(moved[0]) < 0.9
    assert 0.1 < np.mean(moved[0] != moved[1]) < 0.9


def test_parts_with_offsets_are_the_whole() -> None:
    arrays = state("bfloat16", "float32", 1000)
    whole, parts = [a.copy() for a in arrays], [a.copy() for a in arrays]
    for step in (1, 2):
        sr.adamw_(*whole, key=sr.Key(1), step=step)
        for start, stop in ((0, 3), (3, 600), (600, 1000)):
            sr.adamw_(*[a[start:stop] for a in parts], key=sr.Key(1), step=step, offset=start)
    assert all(np.array_equal(a.view(np.uint8), b.view(np.uint8)) for a, b in zip(whole, parts, strict=True))


def test_strided_arrays() -> None:
    arrays = state("bfloat16", "float32", 999)
    whole = [a.copy() for a in arrays]
    spread = [np.repeat(a, 2)[::2] for a in arrays]
    backwards = [a[::-1].copy()[::-1] for a in arrays]
    for copies in (whole, spread, backwards):
        sr.adamw_(*copies, key=sr.Key(1), step=3)
    for copies in (spread, backwards):
        assert all(a.tobytes() == b.tobytes() for a, b in zip(whole, copies, strict=True))


def test_shapes() -> None:
    for shape in ((), (0,), (3, 4)):
        w, g, m, v = (np.ones(shape, np.float32) for _ in range(4))
        sr.adamw_(w, g, m, v, key=sr.Key(1), step=1)
        assert np.all(w < 1)


# Torch


def problem(dtype: Any, seed: Any = 0) -> Any:
    """A linear model and its data."""
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(64, 8, generator=generator)
    target = x @ torch.randn(8, 2, generator=generator)
    w = torch.nn.Parameter(torch.zeros(8, 2).to(dtype))
    b = torch.nn.Parameter(torch.zeros(2).to(dtype))

    def closure() -> Any:
        w.grad = b.grad = None
        loss = ((x @ w.float() + b.float() - target) ** 2).mean()
        loss.backward()
        return loss

    return [w, b], closure


def test_torch_optimiser_with_fp32_weights_is_adamw() -> None:
    torch = pytest.importorskip("torch")
    from popsr.sr.torch import AdamW

    params, closure = problem(torch.float32)
    expect_params, expect_closure = problem(torch.float32)
    ours = AdamW(params, lr=0.01, seed=1)
    theirs = torch.optim.AdamW(expect_params, lr=0.01)
    for _ in range(30):
        loss = ours.step(closure)
        assert float(loss.detach()) == pytest.approx(float(theirs.step(expect_closure).detach()), rel=1e-4)
    for a, b in zip(params, expect_params, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_torch_optimiser_trains_bf16_where_rounding_to_nearest_stops() -> None:
    torch = pytest.importorskip("torch")
    from popsr.sr.torch import AdamW

    final = {}
    for name, make in (("nearest", torch.optim.AdamW), ("stochastic", AdamW)):
        params, closure = problem(torch.bfloat16)
        more = {"seed": 2} if make is AdamW else {}
        optimiser = make(params, lr=2e-3, weight_decay=0.0, **unchecked(more))
        for _ in range(1000):
            loss = optimiser.step(closure)
        final[name] = float(loss.detach())
        assert all(p.dtype == torch.bfloat16 for p in params)
    assert final["stochastic"] < 0.15
    assert final["nearest"] > 5 * final["stochastic"]


def test_torch_optimiser_resumes_with_the_same_bits() -> None:
    torch = pytest.importorskip("torch")
    from popsr.sr.torch import AdamW

    params, closure = problem(torch.bfloat16)
    optimiser = AdamW(params, lr=1e-2)
    for _ in range(5):
        optimiser.step(closure)
    saved = optimiser.state_dict(), [p.detach().clone() for p in params]
    resumed, resumed_closure = problem(torch.bfloat16)
    for p, value in zip(resumed, saved[1], strict=True):
        p.data.copy_(value)
    other = AdamW(resumed, lr=1e-2)
    other.load_state_dict(saved[0])
    assert other.state[resumed[0]]["exp_avg"].dtype == torch.float32
    for _ in range(5):
        optimiser.step(closure)
        other.step(resumed_closure)
    for a, b in zip(params, resumed, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(optimiser.state[a]["exp_avg_sq"], other.state[b]["exp_avg_sq"])


def test_torch_optimiser_options() -> None:
    """Groups, parameters without gradient, moments in bf16, a seed that differs."""
    torch = pytest.importorskip("torch")
    from popsr.sr.torch import AdamW

    found = []
    for seed in (1, 1, 2):
        params, closure = problem(torch.bfloat16)
        idle = torch.nn.Parameter(torch.ones(3))
        groups = [{"params": [params[0], idle]}, {"params": [params[1]], "lr": 0.0, "weight_decay": 0.0}]
        optimiser = AdamW(groups, lr=1e-2, seed=seed, moments=torch.bfloat16)
        for _ in range(20):
            optimiser.step(closure)
        assert torch.equal(params[1], torch.zeros(2, dtype=torch.bfloat16))
        assert torch.equal(idle, torch.ones(3))
        assert optimiser.state[params[0]]["exp_avg"].dtype == torch.bfloat16
        found.append(params[0].detach().clone())
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
