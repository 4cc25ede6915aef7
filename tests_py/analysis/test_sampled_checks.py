"""``Session(check=...)``: what it takes, and that looking does not change what is computed."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr.ops import collectives
from tests_py.support.helpers import Streams, assert_same_bits


def program() -> tuple[popsr.Ir, Streams]:
    ir = popsr.Ir(replication=4)
    ir.options.enable_stochastic_rounding = True
    io = Streams()
    with ir.main_graph, popsr.in_sequence():
        x = io.feed(np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32), replicated=True)
        w = popsr.variable(np.ones(8, np.float32), popsr.bfloat16, "w")
        half = ops.cast(x, popsr.bfloat16)
        ops.add_(w, collectives.replicated_all_reduce(half, "mean"))
        io.fetch(ops.mul(w, half))
    return ir, io


SHARES = [True, False, 0.01, 0.5, 1.0, np.float32(0.25), Fraction(1, 3), np.True_, 1]


@pytest.mark.parametrize("check", SHARES, ids=repr)
def test_checks_do_not_change_results(check: Any) -> None:
    results = []
    for options in ({}, {"check": check}):
        ir, io = program()
        with popsr.Session(ir, seed=3, **options) as session:
            results.append([io.run(session)[0] for _ in range(5)])
    for got, expect in zip(*results, strict=True):
        assert_same_bits(got, expect)


def test_any_share_stores_every_replica() -> None:
    blocks = {}
    for check in (False, 0.01, True):
        ir, _ = program()
        blocks[check] = popsr.Session(ir, check=check).memory()["variables"]
    assert blocks == {False: 16, 0.01: 64, True: 64}


BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "negative": (-0.1, ValueError, "check is not a share, got -0.1, expected a bool or 0 <= check <= 1"),
    "more than all": (1.5, ValueError, "check is not a share, got 1.5"),
    "not a number": (float("nan"), ValueError, "check is not a share, got nan"),
    "text": ("0.1", TypeError, "check is not a number, got '0.1'"),
    "nothing": (None, TypeError, "check is not a number, got None"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_shares(name: str) -> None:
    value, error, text = BAD[name]
    ir, _ = program()
    with pytest.raises(error, match=re.escape(f"Session: {text}")) as info:
        popsr.Session(ir, check=value)
    assert isinstance(info.value, errors.Error)
