"""check_gradients refuses what it cannot check, with a typed error of one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr.testing import check_gradients
from tests_py.support.typed_errors import untyped


class Case:
    """A program with something of each kind."""

    def __init__(self) -> None:
        self.ir, other = popsr.Ir(replication=2), popsr.Ir(replication=2)
        pair = self.ir.replica_grouping()
        with self.ir.main_graph, popsr.in_sequence():
            self.x = popsr.h2d_stream((2,), popsr.float64, "x")
            self.unused = popsr.d2h_stream((), popsr.float64, "unused")
            self.by_group = popsr.d2h_stream((), popsr.float64, "by_group", replicated_stream_mode=pair)
            self.w = popsr.variable(np.ones(2), popsr.float64, "w")
            self.count = popsr.variable(np.ones(2), popsr.int32, "count")
            loaded = ops.host_load(self.x)
            self.loss = ops.sum(self.w * self.w * loaded)
            ops.host_store(self.by_group, self.loss)
            self.dw = self.w * loaded * 2.0
            self.whole = ops.cast(self.loss, popsr.int32)
            self.graph = self.ir.create_graph(lambda w: ops.sum(w), self.w)
            ops.call(self.graph, self.w)
        with other.main_graph:
            self.foreign = popsr.variable(1.0, popsr.float64, "foreign")

    def check(self, **options: Any) -> Any:
        arguments: dict[str, Any] = {
            "ir": self.ir,
            "loss": self.loss,
            "gradients": {self.w: self.dw},
            "inputs": {self.x: np.ones((2, 2))},
        }
        return check_gradients(**(arguments | options))


REFUSED: dict[str, tuple[Callable[[Case], dict[str, Any]], type[Exception], str]] = {
    "ir": (lambda c: {"ir": c.ir.main_graph}, errors.ArgumentTypeError, "ir is not an Ir, got "),
    "loss": (lambda c: {"loss": 3}, errors.ArgumentTypeError, "loss is not a sequence of tensors, got 3"),
    "no loss": (lambda c: {"loss": []}, errors.AttributeValueError, "loss is empty, got "),
    "a loss of the host": (
        lambda c: {"loss": [1.0]},
        errors.ArgumentTypeError,
        "loss is not a tensor, got 1.0, expected a Tensor or d2h_stream",
    ),
    "an input stream as loss": (lambda c: {"loss": [c.x]}, errors.ArgumentTypeError, "loss is not a tensor"),
    "loss of a shape": (
        lambda c: {"loss": c.dw},
        errors.ShapeError,
        r"loss is not a scalar, got shape \(2,\), expected \(\)",
    ),
    "loss of integers": (
        lambda c: {"loss": c.whole},
        errors.DTypeError,
        "loss is of another dtype, got int32, expected one of float64, float32, float16, bfloat16",
    ),
    "loss of another Ir": (lambda c: {"loss": c.foreign}, errors.GraphError, "loss is of another Ir, got "),
    "loss of a called graph": (
        lambda c: {"loss": c.graph.outputs[0]},
        errors.GraphError,
        "loss is made in graph .*, expected a tensor of the main graph, or a d2h_stream that it is stored to",
    ),
    "a stream without a store": (
        lambda c: {"loss": c.unused},
        errors.GraphError,
        "loss is a stream that nothing is stored to, got ",
    ),
    "a stream by group of unequal losses": (
        lambda c: {"loss": c.by_group},
        errors.ReplicaError,
        "whose members are not proved to store the same, got .* for groups .*, expected a stream with",
    ),
    "gradients": (lambda c: {"gradients": 3}, errors.ArgumentTypeError, "gradients is not a mapping, got 3"),
    "a list of gradients": (
        lambda c: {"gradients": [c.dw]},
        errors.ArgumentTypeError,
        "gradients is not a mapping",
    ),
    "no gradients": (
        lambda c: {"gradients": {}},
        errors.AttributeValueError,
        "no gradients, got {}, expected one or more",
    ),
    "not a variable": (
        lambda c: {"gradients": {c.loss: c.loss}},
        errors.ArgumentTypeError,
        "a key of gradients is not a Variable, got ",
    ),
    "a variable of another Ir": (
        lambda c: {"gradients": {c.foreign: c.loss}},
        errors.GraphError,
        "a key of gradients is of another Ir",
    ),
    "a variable of integers": (
        lambda c: {"gradients": {c.count: c.dw}},
        errors.DTypeError,
        "a key of gradients is of another dtype, got int32",
    ),
    "gradient": (
        lambda c: {"gradients": {c.w: np.ones(2)}},
        errors.ArgumentTypeError,
        "the gradient of 'w' is not a tensor",
    ),
    "gradient of another shape": (
        lambda c: {"gradients": {c.w: c.loss}},
        errors.ShapeError,
        r"the gradient of 'w' has another shape, got \(\), expected the variable's \(2,\)",
    ),
    "gradient of a called graph": (
        lambda c: {"gradients": {c.w: c.graph.inputs[0]}},
        errors.GraphError,
        "the gradient of 'w' is made in graph ",
    ),
    "no inputs": (
        lambda c: {"inputs": None},
        errors.SessionError,
        "inputs do not match the streams in use, got unexpected .* and missing ",
    ),
    "inputs of another shape": (
        lambda c: {"inputs": {c.x: np.ones(3)}},
        errors.ShapeError,
        "shapes differ for stream",
    ),
    "scale": (
        lambda c: {"scale": 0},
        errors.AttributeValueError,
        "scale is out of range, got 0.0, expected a finite",
    ),
    "scale of another type": (lambda c: {"scale": "1"}, errors.ArgumentTypeError, "scale is not a number"),
    "directions": (
        lambda c: {"directions": 0},
        errors.AttributeValueError,
        "directions: got 0, expected an int from 1",
    ),
    "step": (
        lambda c: {"step": -1.0},
        errors.AttributeValueError,
        "step is out of range, got -1.0, expected a pos",
    ),
    "step without an effect": (
        lambda c: {"step": 1e-20},
        errors.AttributeValueError,
        "step is too short for 'w', got 1e-20, expected one that changes a float64",
    ),
    "rtol": (lambda c: {"rtol": np.inf}, errors.AttributeValueError, "rtol is out of range, got inf"),
    "seed": (lambda c: {"seed": -1}, errors.AttributeValueError, "seed: got -1, expected an int from 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    make, error, message = REFUSED[name]
    case = Case()
    options = make(case)
    with pytest.raises(error, match=message) as caught:
        case.check(**options)
    assert isinstance(caught.value, popsr.Error)
    assert untyped(caught.value) is None


def test_a_failed_call_inside_the_program_leaves_it_as_before() -> None:
    case = Case()
    state = case.ir._core.print_state()
    with pytest.raises(errors.GradientError):
        case.check(scale=3.0)
    assert case.ir._core.print_state() == state
