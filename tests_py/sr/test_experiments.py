"""Published experiments on stochastic rounding, short, with fixed keys (spec: stochastic adder, section 4, R1 to R11).

What has an exact value is compared exactly, what is random within bounds that its own spread gives.
"""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from popsr import StochasticAdder, sr
from tests_py import ROOT
from tests_py.sr.cases import np_dtype
from tests_py.support.oracles.rounding import FORMATS
from tests_py.support.unchecked import unchecked

BF16 = ml_dtypes.bfloat16
KEY = sr.Key(2022)
UNIT = {"bfloat16": 2.0**-8, "float16": 2.0**-11}


def running_sum(terms: Any, name: Any, mode: Any, runs: Any = 1, start: Any = 0.0) -> Any:
    """Sums of the columns of ``terms``, ``runs`` of each at once; each addition rounded once."""
    total = np.full((runs, *np.shape(terms)[1:]), start).astype(np_dtype(name))
    for i, term in enumerate(terms):
        sr.add_(total, np.asarray(term), key=KEY.at(i), mode=mode)
    return total.astype(np.float64)


# R1

HARMONIC = [("bfloat16", 5.0625, 64), ("float16", 7.0859375, 512)]


@pytest.mark.parametrize(("name", "stops_at", "after"), HARMONIC)
def test_r1_harmonic_series(name: Any, stops_at: Any, after: Any) -> None:
    n = 20_000
    terms = sr.cast(1 / np.arange(1, n + 1), name, key=KEY, mode="rn")
    nearest = running_sum(terms[:2000], name, "rn")
    assert float(nearest[0]) == stops_at
    assert float(running_sum(terms[:after], name, "rn")[0]) == stops_at
    assert float(running_sum(terms[: after - 1], name, "rn")[0]) < stops_at
    stochastic = running_sum(terms, name, "sr", runs=100)
    exact = terms.astype(np.float64).sum()
    assert abs(stochastic.mean() - exact) < 4 * stochastic.std() / 10
    assert stochastic.mean() == pytest.approx(np.sum(1 / np.arange(1, n + 1)), rel=0.03)


@pytest.mark.slow
def test_r1_harmonic_series_in_fp32() -> None:
    """Stops at 15.40368 after 2,097,151 terms."""
    terms = (1 / np.arange(1, 2_200_000)).astype(np.float32)
    assert float(sr.sum(terms, key=KEY, mode="rn")) == pytest.approx(15.40368, abs=5e-6)
    assert float(sr.sum(terms, key=KEY)) == pytest.approx(terms.astype(np.float64).sum(), rel=1e-4)


# R2


def test_r2_a_thousand_small_updates() -> None:
    runs, update = 2000, np.float32(0.001).astype(BF16)
    exact = 1 + 1000 * float(update)
    assert exact == pytest.approx(1.99945, abs=1e-5)
    updates = np.full(1000, update)
    assert np.all(running_sum(updates, "bfloat16", "rn", start=1) == 1)
    found = running_sum(updates, "bfloat16", "sr", runs, start=1)
    assert abs(found.mean() - exact) < 4 * 0.084 / math.sqrt(runs)
    assert found.std() == pytest.approx(0.084, rel=0.1)


# R3


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_r3_inner_products(name: Any) -> None:
    """100 rows of 10,000 products: the largest backward error to nearest is over 4 times the stochastic one."""
    n, rng = 10_000, np.random.default_rng(0)
    a = sr.cast(1e-3 * rng.uniform(size=(n, 100)), name, key=KEY, mode="rn")
    x = sr.cast(rng.uniform(size=n), name, key=KEY, mode="rn")
    exact = x.astype(np.float64) @ a.astype(np.float64)
    errors = {}
    for mode in ("rn", "sr"):
        total = np.zeros(100, np_dtype(name))
        for i in range(n):
            sr.addcmul_(total, a[i], x[i], key=KEY.at(i), mode=mode)
        errors[mode] = np.max(np.abs(total.astype(np.float64) - exact) / exact)
    assert errors["sr"] < min(1, 3 * math.sqrt(n) * UNIT[name])
    assert errors["rn"] > 4 * errors["sr"]


# R4


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_r4_euler(name: Any) -> None:
    """y' = -y / 20 on [0, 1/64]: to nearest y never moves; stochastically its mean is right."""
    exact, runs = math.exp(-1 / 1280), 2000
    for n in (10, 100, 1000):
        nearest, stochastic = np.ones(1, np_dtype(name)), np.ones(runs, np_dtype(name))
        for step in range(n):
            sr.axpy_(-1 / 1280 / n, nearest, nearest, key=KEY, mode="rn")
            sr.axpy_(-1 / 1280 / n, stochastic, stochastic, key=KEY.fold_in(n).at(step))
        assert float(nearest[0]) == 1
        found = stochastic.astype(np.float64)
        method = (1 - 1 / 1280 / n) ** n  # Euler's own error is below 4e-8
        assert abs(method - exact) < 4e-8
        assert abs(found.mean() - exact) < 4 * found.std() / math.sqrt(runs) + 4e-8


# R5


def test_r5_least_squares() -> None:
    """At rate 0.001 rounding to nearest stops more than 100 times above stochastic rounding."""
    dimensions, samples, runs, steps, rate = 10, 1000, 16, 12_000, 0.001
    rng = np.random.default_rng(0)
    truth = rng.uniform(0, 100, dimensions).astype(np.float32)
    x = rng.standard_normal((samples, dimensions)).astype(np.float32)
    y = x @ truth + rng.normal(0, 0.5, samples).astype(np.float32)
    order = rng.integers(samples, size=(steps, runs))
    losses = {}
    for mode in ("rn", "sr", "sr_equal"):
        w = np.zeros((runs, dimensions), BF16)
        for step, rows in enumerate(order):
            residual = np.einsum("rd,rd->r", x[rows], w.astype(np.float32)) - y[rows]
            sr.add_(w, residual[:, None] * x[rows], alpha=-rate, key=KEY.at(step), mode=mode)
        losses[mode] = np.mean((x @ w.astype(np.float32).T - y[:, None]) ** 2) / 2
    assert losses["rn"] > 100 * losses["sr"]
    assert losses["sr"] < 1.5
    assert losses["sr_equal"] > 2 * losses["sr"]


# R6, R7


@pytest.mark.parametrize(
    ("bits", "least", "most"),
    [(4, 0, 0), (8, 0, 0), (9, 0.65, 0.78), (12, 0.87, 0.95), (16, 0.96, 1.04), (None, 0.96, 1.04)],
)
def test_r6_few_random_bits_stagnate(bits: Any, least: Any, most: Any) -> None:
    """bf16, updates of 1.37 * 2^-9 of the spacing: what is captured of the drift, by the number of random bits."""
    n, steps = 20_000, 40
    update = np.float64(1.37 * 2.0**-9 * 2.0**-7)
    mode = "sr" if bits is None else f"sr_bits={bits}"
    w = running_sum(np.full(steps, update), "bfloat16", mode, n, start=1)
    captured = np.mean(w - 1) / (steps * update)
    assert least <= captured <= most


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_r7_bias_of_few_bits(bits: Any) -> None:
    """Uniform fractions: -2^-(r + 1) of the spacing when r bits are compared, none when all are."""
    n = 400_000
    fractions = np.random.default_rng(1).uniform(size=n)
    x = 1 + fractions * 2.0**-7
    for mode, bias in ((f"sr_bits={bits}", -(2.0 ** -(bits + 1))), ("sr", 0.0)):
        error = (unchecked(sr.cast)(x, "bfloat16", key=KEY, mode=mode).astype(np.float64) - x) * 2.0**7
        assert abs(error.mean() - bias) < 5 * error.std() / math.sqrt(n)


# R8


def test_r8_replicas() -> None:
    """Shared keys: equal bits. Keys of their own: weights differ by sqrt(2 T p (1 - p)) spacings."""
    n, steps, update = 4000, 1000, 1e-4
    replicas = {}
    for name, keys in {"shared": (KEY, KEY), "own": (KEY.fold_in(0), KEY.fold_in(1))}.items():
        pair = [np.ones(n, BF16) for _ in keys]
        for step in range(steps):
            for w, key in zip(pair, keys, strict=True):
                sr.add_(w, update, key=key.at(step))
        replicas[name] = pair
    assert replicas["shared"][0].tobytes() == replicas["shared"][1].tobytes()
    ulps = (replicas["own"][0].astype(np.float64) - replicas["own"][1].astype(np.float64)) * 2.0**7
    p = update * 2.0**7
    assert np.sqrt(np.mean(ulps**2)) == pytest.approx(math.sqrt(2 * steps * p * (1 - p)), rel=0.03)
    assert np.mean(ulps != 0) == pytest.approx(0.92, abs=0.02)


# R9 is test_defects.test_s1_r9_adding_zero_changes_nothing.

# R10


@pytest.mark.slow
def test_r10_the_value_form_freezes() -> None:
    """The figures of the docstring: 20,000 weights, 5,000 constant updates."""
    n, steps = 20_000, 5000
    w = np.full(n, 256, BF16)
    u = np.random.default_rng(0).uniform(0.25, 0.75, n).astype(BF16)
    drifts = {}
    for rng in ("value", "counter"):
        v, adder, moved = w.copy(), StochasticAdder("bfloat16", seed=1, rng=rng), []
        for _ in range(steps):
            before = v.view(np.uint16).copy()
            adder.add_biased(v, u, out=v)
            moved.append(int(np.sum(v.view(np.uint16) != before)))
        drifts[rng] = np.mean(v.astype(np.float64) - 256) / 2
        print(
            rng,
            drifts[rng],
            "exact",
            steps * np.mean(u.astype(np.float64)) / 2,
            "last move",
            np.max(np.nonzero(unchecked(moved))),
        )
    exact = steps * np.mean(u.astype(np.float64)) / 2
    assert drifts["value"] < 1
    assert drifts["counter"] == pytest.approx(exact, rel=0.01)


# R11


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_r11_error_growth_of_sums(name: Any) -> None:
    """40 sums of positive terms: to nearest the relative error goes to 1, stochastically it stays near sqrt(u)."""
    trials, u = 40, UNIT[name]
    for n in (2**8, 2**12, 2**16):
        terms = sr.cast(np.random.default_rng(n).uniform(0, 0.01, (n, trials)), name, key=KEY, mode="rn")
        exact = terms.astype(np.float64).sum(0)
        errors = {}
        for mode in ("rn", "sr"):
            found = sr.sum(terms, key=KEY.at(n), axis=0, mode=mode).astype(np.float64)
            errors[mode] = np.mean(np.abs(found - exact) / exact)
        assert errors["sr"] <= min(3 * math.sqrt(n) * u, 2 * math.sqrt(2 * u))
    assert errors["rn"] > 20 * errors["sr"]


# The examples

EXAMPLES = {
    "sr_harmonic": ("2000", r"bfloat16  after 2000 terms: to nearest 5.0625, mean of 20 runs"),
    "sr_small_updates": ("200", "to nearest                       mean 1.0000, standard deviation 0.0000"),
    "sr_euler": ("100", "bfloat16  rn: 100 steps, error of the mean 7.8e-04, of one run 7.8e-04"),
    "sr_least_squares": ("500", "rate 0.001: bf16, stochastic"),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    size, line = EXAMPLES[name]
    figure = tmp_path / "figure.png"
    result = subprocess.run(
        [sys.executable, ROOT / f"examples/{name}.py", str(figure), size],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    assert line in result.stdout
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_every_example_of_rounding_is_run() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("sr_*.py")} == set(EXAMPLES)


def test_units_are_those_of_the_formats() -> None:
    assert {name: 2.0 ** -(FORMATS[name].fraction_bits + 1) for name in UNIT} == UNIT
