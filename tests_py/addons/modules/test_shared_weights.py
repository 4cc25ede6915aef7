"""Layers whose weight another layer of the same graph uses, as a head that has the table of the embedding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons, ops
from popsr.addons.layers import Embedding, Linear
from tests_py.support.helpers import Array

TOKENS = np.array([2, 0, 2], np.int32)


class TiedEmbedding(addons.Module):
    """Scores of all rows for each row that is looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = Embedding(popsr.float32, 4, 3)

    def build(self, tokens: popsr.Tensor) -> popsr.Tensor:
        return self.embedding(tokens) @ self.embedding.weight.T


class TiedLinear(addons.Module):
    """There and back."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = Linear(4, bias=False)

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        return self.wide(x) @ self.wide.weight.T


def run(module: addons.Module, x: Array, weight: Array) -> tuple[Array, Array]:
    """Result, and the gradient of the weight for ones as gradient of the result."""
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        stream = popsr.h2d_stream(x.shape, popsr.dtypes.dtype.as_dtype(x.dtype))
        for _ in range(2):  # a module may build several graphs
            facts, forward = module.create_graph(stream.spec)
        backward = addons.autodiff(forward, grads_required=forward.args.tensors)
        variables = facts.init()
        call = forward.bind(variables).call_with_info(ops.host_load(stream))
        (y, *_) = call.outputs
        ones = popsr.constant(np.ones(y.shape), y.dtype)
        (grad,) = backward.call(ones, args=backward.grad_graph_info.inputs_dict(call))
        outputs = [popsr.d2h_stream(t.shape, t.dtype) for t in (y, grad)]
        for out, t in zip(outputs, (y, grad), strict=True):
            ops.host_store(out, t)
    with popsr.Session(ir) as session:
        session.write_variables_data({variables.values_flat()[0]: weight})
        results = session.run({stream: x})
    return results[outputs[0]], results[outputs[1]]


def test_a_head_has_the_table_of_the_embedding() -> None:
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    y, grad = run(TiedEmbedding(), TOKENS, table)
    rows = table[TOKENS]
    np.testing.assert_array_equal(y, rows @ table.T)
    expected = np.tile(rows.sum(0), (4, 1))  # of the head: what was looked up
    np.add.at(expected, TOKENS, table.sum(0))
    np.testing.assert_array_equal(grad, expected)


def test_a_layer_goes_back_by_the_weight_of_another() -> None:
    x, weight = np.ones((2, 3), np.float32), np.arange(12, dtype=np.float32).reshape(3, 4)
    y, grad = run(TiedLinear(), x, weight)
    np.testing.assert_array_equal(y, x @ weight @ weight.T)
    ones = np.ones_like(y)
    np.testing.assert_array_equal(grad, x.T @ (ones @ weight) + ones.T @ (x @ weight))


@pytest.mark.parametrize("layer", [lambda: Linear(4), lambda: Embedding(popsr.float32, 4, 3)])
def test_there_is_no_weight_before_the_layer_is_built(layer: Callable[[], Any]) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'weight'"):
        _ = layer().weight
