"""Every rule of an ATen op against torch: movement, integers and bools to the bit, floats to 1e-6."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from popsr.bridge.torch._importer import array_of
from popsr.bridge.torch._rules import COLLECTIVES, PYTHON_RULES, RULES

torch = pytest.importorskip("torch")

from tests_py.bridge.torch.ops import more_rows, rows  # noqa: E402
from tests_py.bridge.torch.ops.one_op import run  # noqa: E402

EXACT = {**rows.COMPARISONS, **rows.SHAPES, **more_rows.INDEXING}
CLOSE = {
    **rows.ARITHMETIC,
    **rows.FUNCTIONS,
    **more_rows.REDUCTIONS,
    **more_rows.BAGS,
    **more_rows.PRODUCTS,
    **more_rows.NETWORKS,
}
# Run by test_steps.py and test_random.py: what they give is not a function of the operands, or a number of Python.
ELSEWHERE = {"_local_scalar_dense.default", "item.default", "contiguous.default", "resize.default"}
RANDOM = {name for name, function in RULES.items() if function.__module__.endswith("._rules.random")}
UNDEFINED = {
    f"{n}.default"
    for n in ("empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")
}
UNDEFINED |= {"empty.memory_format"}
# Sums of several floats into one element, whose order is not torch's.
SUMS = {"scatter_add.default", "scatter_reduce.two", "index_put.default", "_unsafe_index_put.default"}


def _overload(name: str) -> Any:
    packet, overload = name.rsplit(".", 1)
    return getattr(getattr(torch.ops.aten, packet), overload)


def test_each_rule_has_a_row() -> None:
    assert set(EXACT) | set(CLOSE) == set(RULES) - ELSEWHERE - RANDOM - UNDEFINED
    assert not set(EXACT) & set(CLOSE)
    assert COLLECTIVES
    assert PYTHON_RULES


def _same(got: Any, expected: Any, exact: bool) -> None:
    wanted = array_of(expected) if isinstance(expected, torch.Tensor) else np.asarray(expected)
    assert got.shape == wanted.shape
    assert got.dtype == wanted.dtype
    if exact or wanted.dtype.kind in "iub":
        np.testing.assert_array_equal(np.asarray(got), wanted)
    else:
        tolerance = 1e-6 if wanted.dtype == np.float32 else 1e-2
        with np.errstate(invalid="ignore"):  # NaN of float8
            got, wanted = got.astype(np.float64), wanted.astype(np.float64)
        np.testing.assert_allclose(got, wanted, rtol=tolerance * 2, atol=tolerance * 2)


@pytest.mark.parametrize("name", sorted({**EXACT, **CLOSE}))
def test_row(name: str) -> None:
    for args, options in {**EXACT, **CLOSE}[name]:
        for got, expected in run(_overload(name), args, options):
            if expected is None:
                assert got is None
            else:
                _same(got, expected, name in EXACT and name not in SUMS)


@pytest.mark.parametrize("name", sorted(UNDEFINED))
def test_elements_without_a_value_are_nans(name: str) -> None:
    like = torch.zeros(2, 3)
    args = {
        "empty.memory_format": ([2, 3],),
        "empty_like.default": (like,),
        "empty_strided.default": ([2, 3], [3, 1]),
        "empty_permuted.default": ([2, 3], [0, 1]),
        "new_empty.default": (like, [2, 3]),
        "new_empty_strided.default": (like, [2, 3], [3, 1]),
    }[name]
    ((got, _),) = run(_overload(name), args, {})
    assert got.shape == (2, 3)
    assert np.isnan(got).all()
