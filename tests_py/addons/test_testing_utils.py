"""popsr.addons.testing_utils: one module in a program of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons, errors, ops
from popsr.addons.testing_utils import TensorInput, ops_of_type, run_module
from tests_py.support.helpers import assert_same_bits
from tests_py.support.unchecked import unchecked

Array = np.ndarray[Any, Any]
X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Scale(addons.Module):
    """x * w * times + shift, with w = 2."""

    def build(self, x: popsr.Tensor, times: float = 1.0, *, shift: Any = 0.0) -> popsr.Tensor:
        w = self.add_variable_input("w", lambda: np.full(3, 2, np.float32), popsr.float32)
        return x * w * times + shift


class Increment(addons.Module):
    """Adds to its arguments in place."""

    def build(self, x: popsr.TensorByRef, others: list[popsr.Tensor]) -> tuple[popsr.Tensor, ...]:
        ops.add_(x, others[0])
        return x, others[1]


class Pass(addons.Module):
    """Its argument, or nothing."""

    def build(self, x: popsr.Tensor, nothing: bool = False) -> popsr.Tensor | None:
        return None if nothing else x


@pytest.mark.parametrize(
    ("args", "kwargs", "wanted"),
    [
        ((TensorInput(X),), {}, X * 2),
        ((TensorInput(X), 3.0), {}, X * 6),
        ((TensorInput(X), TensorInput(unchecked(np.float32(3)))), {}, X * 6),
        ((TensorInput(X),), {"shift": TensorInput(np.ones(3, np.float32))}, X * 2 + 1),
        ((), {"shift": TensorInput(np.ones(3, np.float32)), "times": 2.0, "x": TensorInput(X)}, X * 4 + 1),
        ((TensorInput(X),), {"weights": lambda variables: {variables.w: np.ones(3, np.float32)}}, X),
    ],
)
def test_outputs_are_those_of_build(args: Any, kwargs: Any, wanted: Array) -> None:
    (got,) = run_module(Scale(), *args, **kwargs)
    assert_same_bits(got, wanted.astype(np.float32))


def test_weights_of_known_variables_are_given_as_they_are() -> None:
    weights = addons.WeightsDict() if hasattr(addons, "WeightsDict") else {}
    (got,) = run_module(Scale(), TensorInput(X), weights=weights)
    assert_same_bits(got, X * 2)


def test_arguments_by_reference_come_out_updated() -> None:
    other = np.full((2, 3), 10, np.float32)
    got = run_module(Increment(), TensorInput(X), [TensorInput(other), TensorInput(X)])
    assert len(got) == 2
    assert_same_bits(got[0], X + other)
    assert_same_bits(got[1], X)


@pytest.mark.parametrize(
    ("data", "dtype", "wanted"),
    [
        ([1.5, 2], None, np.array([1.5, 2], np.float32)),
        (np.array([1.5, 2]), None, np.array([1.5, 2], np.float32)),
        (np.array([1.5, 2]), popsr.float64, np.array([1.5, 2])),
        (np.array([1.5, 2]), popsr.float16, np.array([1.5, 2], np.float16)),
        (np.array([[3]]), popsr.uint32, np.array([[3]], np.uint32)),
    ],
)
def test_inputs_have_a_dtype(data: Any, dtype: Any, wanted: Array) -> None:
    given = TensorInput(data, dtype)
    assert_same_bits(given.data, wanted)
    assert given.dtype.as_numpy() == wanted.dtype
    assert repr(given) == f"TensorInput[{given.dtype.name} {wanted.shape}]"
    assert_same_bits(run_module(Pass(), given)[0], wanted)


def test_modules_without_outputs_return_none() -> None:
    class Printing(addons.Module):
        def build(self, x: popsr.Tensor) -> None:
            self.add_variable_input("unused", lambda: np.ones(1, np.float32))

    assert run_module(Printing(), TensorInput(X)) == []


def test_ops_are_counted_by_name() -> None:
    with popsr.Ir().create_empty_graph() as graph:
        x = popsr.graph_input((2, 2), popsr.float32)
        ops.relu(x @ x @ x)
    counts = {kind: ops_of_type(iter(graph.ops), kind) for kind in ("matmul", "relu", "add")}
    assert counts == {"matmul": 2, "relu": 1, "add": 0}


REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (
        lambda: run_module(unchecked(3)),
        errors.ArgumentTypeError,
        "^run_module: module is not a Module, got 3",
    ),
    (lambda: run_module(Scale(), 1, 2, 3), ValueError, "arguments do not fit Scale"),
    (
        lambda: run_module(Scale(), TensorInput(X), weights=lambda v: {v.w: np.ones(2, np.float32)}),
        ValueError,
        "'w'",
    ),
    (lambda: TensorInput(unchecked("x")), TypeError, "'x'|str"),
    (lambda: TensorInput(unchecked([1]), unchecked("f")), errors.DTypeError, "f"),
    (
        lambda: ops_of_type([], popsr.Tensor),
        errors.ArgumentTypeError,
        "^ops_of_type: op_type is not a class of ops or a str, got <class",
    ),
    (lambda: ops_of_type([unchecked(1)], "add"), errors.ArgumentTypeError, "^ops_of_type: not an Op, got 1"),
]


@pytest.mark.parametrize(("call", "error", "match"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_refused(call: Callable[[], Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match) as caught:
        call()
    assert isinstance(caught.value, popsr.Error)
    assert "\n" not in str(caught.value)
