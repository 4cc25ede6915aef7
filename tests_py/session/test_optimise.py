"""Sessions without rewrites of their plans: each op by itself, the same bits. Programs of all suites run so, too, in
tests_py/golden, tests_py/analysis/test_soundness.py and the fuzz."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from tests_py.support.helpers import Array, assert_same_bits

HEADS, SIZE = 3, 4


def attention(dtype: popsr.dtype, replicas: int = 2) -> tuple[popsr.Ir, popsr.DeviceToHostStream]:
    """Heads are slices of one projection; keys are transposed; the heads are joined at the end."""
    ir = popsr.Ir(replicas)
    batch, rows, width = 2, 5, HEADS * SIZE
    rng = np.random.default_rng(5)
    with ir.main_graph, popsr.in_sequence():
        x = popsr.variable(rng.normal(size=(batch, rows, width)), dtype, name="x")
        w = popsr.variable(rng.normal(size=(width, 3 * width)), dtype, name="w")
        qkv = x @ w
        q, k, v = (
            ops.transpose(part.reshape((batch, rows, HEADS, SIZE)), (0, 2, 1, 3))
            for part in (qkv[:, :, i * width : (i + 1) * width] for i in range(3))
        )
        scores = ops.softmax(q @ ops.transpose(k, (0, 1, 3, 2)), -1)
        joined = ops.transpose(scores @ v, (0, 2, 1, 3)).reshape((batch, rows, width))
        out = popsr.d2h_stream(joined.shape, dtype, name="out")
        ops.host_store(out, joined)
    return ir, out


def run(ir: popsr.Ir, out: popsr.DeviceToHostStream, **options: Any) -> tuple[Array, list[str]]:
    with popsr.Session(ir, seed=3, profile=True, **options) as session:
        result = session.run()[out]
    return result, [row.name for row in session.profile().kinds]


@pytest.mark.parametrize("dtype", [popsr.float32, popsr.bfloat16, popsr.float16], ids=str)
@pytest.mark.parametrize("stochastic", [False, True])
def test_products_through_views_have_the_bits_of_copies(dtype: popsr.dtype, stochastic: bool) -> None:
    ir, out = attention(dtype)
    ir.options.enable_stochastic_rounding = stochastic
    expected, each = run(ir, out, optimise=False, num_threads=1)
    assert "transpose" in each
    found, fewer = run(ir, out)
    assert "transpose" not in fewer
    assert_same_bits(found, expected, "optimise")
    for options in ({"dedup": False}, {"check": True}, {"num_threads": 2}):
        assert_same_bits(run(ir, out, **options)[0], expected, str(options))


def test_unoptimised_sessions_share_no_buffers() -> None:
    ir, _ = attention(popsr.float32)
    with popsr.Session(ir, optimise=False) as session:
        memory = session.memory()["activations"]
    with popsr.Session(ir) as session:
        assert session.memory()["activations"] < memory


def test_optimise_is_a_flag() -> None:
    ir, _ = attention(popsr.float32)
    with pytest.raises(errors.ArgumentTypeError, match=r"^Session: optimise is not a bool"):
        popsr.Session(ir, optimise=np.ones(2))  # type: ignore[arg-type]


@pytest.mark.parametrize("products", [1, 8])
def test_products_of_bfloat16_that_are_added_at_once_share_their_tiles(products: int) -> None:
    """Tiles take at most 0.5 MiB a thread, however many products of the program have them."""
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        x = popsr.variable(np.ones((512, 64)), popsr.bfloat16, "x")
        for i in range(products):
            total = popsr.variable(np.zeros((512, 512)), popsr.bfloat16, f"total{i}")
            ops.var_updates.accumulate_(total, x @ x.T)
    with popsr.Session(ir, num_threads=2) as session:
        assert session.plan.count("matmul+accumulate_") == products
        assert session.memory()["activations"] <= 2 << 19
