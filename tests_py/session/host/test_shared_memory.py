"""Arrays of one run that share memory: inputs are copied, outputs are refused before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import popsr
from popsr import ops
from popsr.errors import SessionError
from popsr.ops import var_updates
from tests_py.support.helpers import Array

F32 = popsr.float32


class Echo:
    """Stores three times what it loads, transfer by transfer, and how often it ran."""

    def __init__(self, outputs: int = 1, transfers: int = 4) -> None:
        self.ir = popsr.Ir()
        self.ir.num_host_transfers = transfers
        with self.ir.main_graph, popsr.in_sequence():
            self.stream = popsr.h2d_stream((4,), F32, "in")
            self.outputs = [popsr.d2h_stream((4,), F32, f"out{i}") for i in range(outputs)]
            self.runs = popsr.variable(0, F32, "runs")

            def step() -> None:
                with popsr.in_sequence():
                    x = ops.host_load(self.stream)
                    for out in self.outputs:
                        ops.host_store(out, x * 3.0)

            ops.repeat(self.ir.create_graph(step), transfers)
            var_updates.accumulate_(self.runs, popsr.constant(1, F32))


def memory(rows: int = 5) -> Array:
    return np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)


# Parts of one array that are the input and the output of four transfers.
SHARED: dict[str, Callable[[Array], tuple[Array, Array]]] = {
    "output one row behind": lambda m: (m[:4], m[1:5]),
    "output one row ahead": lambda m: (m[1:5], m[:4]),
    "the same": lambda m: (m[:4], m[:4]),
    "reversed input": lambda m: (m[3::-1], m[:4]),
    "reversed output": lambda m: (m[:4], m[3::-1]),
    "input of stride 0": lambda m: (np.broadcast_to(m[2], (4, 4)), m[:4]),
    "columns": lambda m: (m[:4], m[:4].T),
    "apart": lambda m: (m[:4].copy(), m[1:5]),
    "whole and view": lambda m: (m, m[1:5]),
}


@pytest.mark.parametrize("shared", SHARED)
def test_inputs_that_overlap_outputs_are_copied(shared: str) -> None:
    echo = Echo()
    inputs, outputs = SHARED[shared](memory())
    expect = 3 * inputs[:4].copy()
    with popsr.Session(echo.ir) as session:
        session.run_with_outputs({echo.stream: inputs}, {echo.outputs[0]: outputs})
    np.testing.assert_array_equal(outputs, expect)


def strided(shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Array:
    return as_strided(np.zeros(64, np.float32)[offset:], shape, tuple(4 * s for s in strides))


# Outputs of two streams, and which of them is named.
REFUSED: dict[str, tuple[Callable[[], tuple[Array, Array]], str]] = {
    "stride 0": (
        lambda: (np.zeros((4, 4), np.float32), strided((4, 4), (0, 1))),
        "'out1' overlap each other",
    ),
    "all in one": (
        lambda: (strided((4, 4), (0, 0)), np.zeros((4, 4), np.float32)),
        "'out0' overlap each other",
    ),
    "rows overlap": (
        lambda: (strided((4, 4), (3, 1)), np.zeros((4, 4), np.float32)),
        "'out0' overlap each other",
    ),
    "one array": (lambda: (same := np.zeros((4, 4), np.float32), same)[:2], "'out0' and 'out1' overlap"),
    "rows in common": (lambda: (m := memory(), (m[:4], m[1:]))[1], "'out0' and 'out1' overlap"),
    "reversed": (lambda: (m := memory(4), (m, m[::-1]))[1], "'out0' and 'out1' overlap"),
    "crossed": (lambda: (m := memory(4), (m[::-1, ::-1], m.T))[1], "'out0' and 'out1' overlap"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_outputs_that_overlap_are_refused_before_anything_runs(case: str) -> None:
    make, words = REFUSED[case]
    echo = Echo(outputs=2)
    first, second = make()
    before = first.copy(), second.copy()
    with popsr.Session(echo.ir) as session:
        with pytest.raises(SessionError, match=words) as error:
            session.run_with_outputs(
                {echo.stream: memory(4)}, dict(zip(echo.outputs, (first, second), strict=True))
            )
        assert "\n" not in str(error.value)
        assert session.get_tensor_data(echo.runs) == 0
        assert session.step == 0
    np.testing.assert_array_equal(first, before[0])
    np.testing.assert_array_equal(second, before[1])


ACCEPTED: dict[str, Callable[[], tuple[Array, Array]]] = {
    "halves": lambda: (m := memory(8), (m[:4], m[4:]))[1],
    "every other row": lambda: (m := memory(8), (m[::2], m[1::2]))[1],
    "columns": lambda: (m := np.zeros((4, 8), np.float32), (m[:, :4], m[:, 4:]))[1],
    "interleaved columns": lambda: (m := np.zeros((4, 8), np.float32), (m[:, ::2], m[:, 1::2]))[1],
    "reversed halves": lambda: (m := memory(8), (m[3::-1], m[:3:-1]))[1],
    "transposed": lambda: (np.zeros((4, 4), np.float32).T, np.zeros((4, 4), np.float32)),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_outputs_beside_each_other_are_written(case: str) -> None:
    echo = Echo(outputs=2)
    first, second = ACCEPTED[case]()
    with popsr.Session(echo.ir) as session:
        session.run_with_outputs(
            {echo.stream: memory(4)}, dict(zip(echo.outputs, (first, second), strict=True))
        )
    np.testing.assert_array_equal(first, 3 * memory(4))
    np.testing.assert_array_equal(second, 3 * memory(4))


def test_many_outputs_of_one_array() -> None:
    """Neighbours are compared, not all pairs."""
    echo = Echo(outputs=60)
    whole = np.zeros((60, 4, 4), np.float32)
    with popsr.Session(echo.ir) as session:
        session.run_with_outputs({echo.stream: memory(4)}, dict(zip(echo.outputs, whole, strict=True)))
        np.testing.assert_array_equal(whole, np.broadcast_to(3 * memory(4), whole.shape))
        given: dict[Any, Array] = dict(zip(echo.outputs, whole, strict=True))
        given[echo.outputs[41]] = whole[17]
        with pytest.raises(SessionError, match="'out17' and 'out41' overlap"):
            session.run_with_outputs({echo.stream: memory(4)}, given)
