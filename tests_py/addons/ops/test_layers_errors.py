"""Arguments that layers of ``popsr.addons`` refuse: nothing is added."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons, errors
from popsr.addons import layers
from tests_py.support.helpers import assert_refused, make_variable
from tests_py.support.unchecked import unchecked


def spec(*shape: int, kind: Any = popsr.float32) -> popsr.TensorSpec:
    return popsr.TensorSpec(shape, kind)


Row = tuple[type[Exception], str, Callable[[], Any]]

REFUSED: dict[str, Row] = {
    "features": (
        errors.AttributeValueError,
        "Linear: out_features: got 0, expected an int from 1",
        lambda: layers.Linear(0),
    ),
    "linear of a scalar": (
        errors.ShapeError,
        r"Linear: x has too few axes, got shape \(\), expected at least 1",
        lambda: layers.Linear(3).build(popsr.graph_input((), popsr.float32)),
    ),
    "layer norm of three axes": (
        errors.ShapeError,
        r"LayerNorm: x has another rank, got shape \(2, 3, 4\), expected two axes",
        lambda: layers.LayerNorm().build(popsr.graph_input((2, 3, 4), popsr.float32)),
    ),
    "layer norm of other axes": (
        errors.ShapeError,
        r"LayerNorm: x has other last axes than normalized_shape, got shape \(2, 4, 3\), expected \(..., 3, 4\)",
        lambda: layers.LayerNorm(normalized_shape=(3, 4)).build(popsr.graph_input((2, 4, 3), popsr.float32)),
    ),
    "layer norm of too few axes": (
        errors.ShapeError,
        r"LayerNorm: x has other last axes than normalized_shape, got shape \(4,\)",
        lambda: layers.LayerNorm(normalized_shape=(3, 4)).build(popsr.graph_input((4,), popsr.float32)),
    ),
    "layer norm of nothing": (
        errors.ShapeError,
        r"LayerNorm: nothing is normalised, got normalized_shape \(\), expected extents",
        lambda: layers.LayerNorm(normalized_shape=()),
    ),
    "group norm of a vector": (
        errors.ShapeError,
        r"GroupNorm: x has too few axes, got shape \(4,\)",
        lambda: layers.GroupNorm(2).build(popsr.graph_input((4,), popsr.float32)),
    ),
    "groups of channels": (
        errors.AttributeValueError,
        "GroupNorm: num_groups: got 0",
        lambda: layers.GroupNorm(0),
    ),
    "rule": (
        errors.AttributeValueError,
        "Conv2D: unknown paddings, got 'same', expected one of 'same_upper'",
        lambda: layers.Conv2D(3, 3, paddings="same"),
    ),
    "kernel": (
        errors.AttributeValueError,
        r"Conv2D: kernel_size has another length, got \(3,\)",
        lambda: layers.Conv2D(3, (3,)),
    ),
    "kernel of floats": (
        errors.ArgumentTypeError,
        "Conv2D: kernel_size is not an int, got 3.5",
        lambda: layers.Conv2D(3, 3.5),  # type: ignore[arg-type]
    ),
    "image": (
        errors.ShapeError,
        r"Conv2D: x has another rank, got shape \(2, 3\)",
        lambda: layers.Conv2D(3, 3).build(popsr.graph_input((2, 3), popsr.float32)),
    ),
    "groups": (
        errors.AttributeValueError,
        "Conv2D: groups do not divide the channels, got 2 for 3 and 4",
        lambda: layers.Conv2D(4, 3, groups=2).build(popsr.graph_input((1, 3, 5, 5), popsr.float32)),
    ),
    "vocabulary": (
        errors.AttributeValueError,
        "Embedding: vocab_size: got 0",
        lambda: layers.Embedding(popsr.float32, 0, 3),
    ),
    "axis": (
        errors.AttributeValueError,
        "Embedding: unknown axis, got 2, expected one of 0, 1",
        lambda: layers.Embedding(popsr.float32, 3, 3, 2),
    ),
    "dtype": (
        errors.DTypeError,
        "Embedding: ",
        lambda: layers.Embedding("no dtype", 3, 3),  # type: ignore[arg-type]
    ),
    "parts": (
        errors.AttributeValueError,
        "get_vocab_shard_size: n_shards: got 0",
        lambda: layers.Embedding.get_offsets(5, 0),
    ),
    "metric": (
        errors.AttributeValueError,
        "LinearFP8: unknown scale_metric, got 'max'",
        lambda: layers.LinearFP8(3, scale_metric="max"),
    ),
    "scale": (
        errors.AttributeValueError,
        "LinearFP8: scale: got 20, expected an int from -15 to 16",
        lambda: layers.LinearFP8(3, scale=20),
    ),
    "dim": (
        errors.AttributeValueError,
        "LinearGQ: unknown dim, got 2",
        lambda: layers.LinearGQ(4, dim=2),
    ),
}


@pytest.mark.parametrize("row", REFUSED)
def test_refused(row: str) -> None:
    error, match, build = REFUSED[row]
    assert_refused(build, error, match)


def test_columns_that_cannot_be_shared_out() -> None:
    ir = popsr.Ir(replication=2)
    layer = layers.Embedding(popsr.float32, 4, 3, 1, ir.replica_grouping(1, 1))
    with ir.main_graph, pytest.raises(errors.ShapeError, match="hidden_size 3 for 2 groups"):
        layer.create_graph(spec(2, kind=popsr.int32))


def test_data_of_torch_that_does_not_fit() -> None:
    torch = pytest.importorskip("torch")
    ir = popsr.Ir()
    with ir.main_graph:
        variables = {
            bias: layers.Linear(5, bias).create_graph(spec(2, 4))[0].init(f"v{bias}")
            for bias in (True, False)
        }
        other = addons.NamedTensors(weight=make_variable(np.ones((3, 2), np.float32)))
    with_bias, without = torch.nn.Linear(4, 5), torch.nn.Linear(4, 5, bias=False)
    mapping = layers.Linear.torch_mapping
    for build, match in (
        (
            lambda: mapping(variables[True], without),
            "Linear.torch_mapping: the layer has no bias, got Linear",
        ),
        (lambda: mapping(variables[False], with_bias), "no variable for the bias"),
        (lambda: mapping(other, without), "another shape"),
        (lambda: mapping(addons.NamedTensors(), without), "no such variable, got None for 'weight'"),
    ):
        with pytest.raises(ValueError, match=match):
            build()
    with pytest.raises(TypeError, match="another dtype"):
        mapping(variables[True], with_bias, popsr.float16)
    for twin in (layers.Linear, layers.GroupNorm, layers.LayerNorm, layers.Conv2D):
        with pytest.raises(
            errors.ArgumentTypeError, match="torch_mapping: variables is not a NamedTensors, got dict"
        ):
            twin.torch_mapping(unchecked({}), with_bias)
