"""Bounds for counts and means that are random by design but fixed by their keys."""

from __future__ import annotations

import math

import numpy as np


def binomial_interval(n: int, p: float, error: float = 1e-9) -> tuple[int, int]:
    """Counts outside of which a binomial variable lies with a chance of at most ``error`` on each side; exact."""
    k = np.arange(n + 1)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    with np.errstate(divide="ignore", invalid="ignore"):
        log_pmf = log_factorial[n] - log_factorial[k] - log_factorial[n - k]
        log_pmf += np.where(k == 0, 0.0, k * math.log(p)) + np.where(k == n, 0.0, (n - k) * math.log1p(-p))
    pmf = np.exp(log_pmf)
    low = int(np.searchsorted(np.cumsum(pmf), error))
    high = n - int(np.searchsorted(np.cumsum(pmf[::-1]), error))
    return low, high


def assert_binomial(count: int, n: int, p: float, what: str = "") -> None:
    """``count`` successes of ``n``, each with chance ``p``."""
    low, high = binomial_interval(n, p)
    assert low <= count <= high, f"{what}: {count} of {n}, expected {low} to {high} for p = {p}"
