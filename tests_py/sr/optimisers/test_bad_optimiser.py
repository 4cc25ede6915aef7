"""Refused calls of ``adamw_``; nothing is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from popsr import errors, sr
from tests_py.sr.refused import ARGUMENT, DTYPE, F32, KEY, SHAPE, VALUE, N, frozen, sevens


def adamw(**changes: Any) -> Any:
    arrays = {"w": sevens(), "g": F32, "m": np.zeros(N, np.float32), "v": np.zeros(N, np.float32)}
    options = {"key": KEY, "step": 1, "lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.0}
    given = arrays | options | changes
    return [given.pop(name) for name in arrays], given


BAD_ADAMW = {
    "step 0": ({"step": 0}, VALUE, "adamw_: step: got 0, expected an int from 1"),
    "fractional step": ({"step": 1.0}, ARGUMENT, "adamw_: step is not an int, got 1.0"),
    "negative lr": ({"lr": -1.0}, VALUE, "adamw_: lr is out of range, got -1.0, expected 0 <= lr < inf"),
    "NaN lr": ({"lr": float("nan")}, VALUE, "adamw_: lr is out of range, got nan"),
    "textual lr": ({"lr": "0.1"}, ARGUMENT, "adamw_: lr is not a number, got str"),
    "beta 1": (
        {"betas": (1.0, 0.9)},
        VALUE,
        "adamw_: betas[0] is out of range, got 1.0, expected 0 <= betas[0] < 1",
    ),
    "one beta": ({"betas": 0.9}, ARGUMENT, "adamw_: betas is not a pair of numbers, got 0.9"),
    "three betas": ({"betas": (0.9, 0.9, 0.9)}, ARGUMENT, "adamw_: betas is not a pair of numbers"),
    "negative eps": ({"eps": -1e-8}, VALUE, "adamw_: eps is out of range"),
    "infinite decay": ({"weight_decay": float("inf")}, VALUE, "adamw_: weight_decay is out of range"),
    "shape of g": (
        {"g": F32[:1]},
        SHAPE,
        "adamw_: shapes differ, got w of (6,), g of (1,), m of (6,), v of (6,), expected",
    ),
    "read-only m": ({"m": frozen(np.zeros(N, np.float32))}, ARGUMENT, "adamw_: m is read-only"),
    "integer v": ({"v": np.zeros(N, np.int32)}, DTYPE, "adamw_: v has no supported dtype, got int32"),
    "raw w": ({"w": np.zeros(N, np.uint16)}, DTYPE, "adamw_: w is a buffer of integers, got uint16"),
    "negative offset": ({"offset": -1}, VALUE, "adamw_: offset: got -1"),
    "key": ({"key": 1}, ARGUMENT, "adamw_: key is missing or of the wrong type, got int"),
}


@pytest.mark.parametrize("row", BAD_ADAMW.values(), ids=BAD_ADAMW.keys())
def test_adamw_refuses(row: Any) -> None:
    changes, error, text = row
    arrays, options = adamw(**changes)
    before = [a.copy() for a in arrays]
    with pytest.raises(error) as caught:
        sr.adamw_(*arrays, **options)
    assert isinstance(caught.value, errors.Error)
    assert str(caught.value).startswith(text), str(caught.value)
    assert all(np.array_equal(a, b) for a, b in zip(arrays, before, strict=True))


def test_adamw_refuses_shared_memory() -> None:
    for first, second in (("w", "g"), ("w", "m"), ("m", "v"), ("g", "v")):
        arrays, options = adamw(**{name: sevens() for name in ("g", "m", "v")})
        names = ["w", "g", "m", "v"]
        arrays[names.index(second)] = arrays[names.index(first)]
        with pytest.raises(VALUE, match=r"^adamw_: [wmv] overlaps [wgmv], got strides"):
            sr.adamw_(*arrays, **options)
        assert all(np.all(a == 7) for a in arrays)
