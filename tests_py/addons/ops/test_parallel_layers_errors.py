"""Arguments that parallel layers of ``popsr.addons`` refuse: nothing is added."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons, errors
from popsr.addons import layers

Spec = tuple[int, ...] | tuple[tuple[int, ...], popsr.dtype]


def on(layer: addons.Module, *specs: Spec) -> Callable[[], Any]:
    """A call that builds the layer for operands of these shapes, or of shapes with dtypes."""

    def build() -> None:
        layer.create_graph(*(popsr.TensorSpec(*read_spec(each)) for each in specs))

    return build


def read_spec(spec: Any) -> tuple[tuple[int, ...], popsr.dtype]:
    return spec if spec and isinstance(spec[-1], popsr.dtype) else (spec, popsr.float32)


OF_TWO = popsr.Ir(replication=2).replica_grouping()
PAIRS = popsr.Ir(replication=4).replica_grouping(group_size=2)
COLUMNS, ROWS = layers.ColumnParallelLinear, layers.RowParallelLinear
EMBEDDING, LOSS = layers.ParallelEmbedding, layers.ParallelCrossEntropy
ATTENTION = layers.ParallelAttention
F32, I32 = popsr.float32, popsr.int32
SHARED_OUT = "cannot be shared out, got"

REFUSED: dict[str, tuple[type[Exception], str, Callable[[], Any]]] = {
    "columns: features": (
        errors.AttributeValueError,
        "ColumnParallelLinear: out_features: got 0, expected an int from 1",
        lambda: COLUMNS(0),
    ),
    "columns: features do not divide": (
        errors.ShapeError,
        f"ColumnParallelLinear: out_features {SHARED_OUT} 6 for groups of 4 replicas, expected a multiple",
        on(COLUMNS(6), (2, 3)),
    ),
    "columns: scalar": (
        errors.ShapeError,
        r"ColumnParallelLinear: x has too few axes, got shape \(\), expected at least 1 axis",
        on(COLUMNS(4), ()),
    ),
    "columns: integers": (
        errors.DTypeError,
        "ColumnParallelLinear: x is not of floats, got int32, expected float16",
        on(COLUMNS(4), ((2, 3), I32)),
    ),
    "columns: group of other replicas": (
        errors.ReplicaError,
        "ColumnParallelLinear: grouping of another replica count, got 2, expected 4",
        on(COLUMNS(4, group=OF_TWO), (2, 3)),
    ),
    "columns: group is not a grouping": (
        errors.ArgumentTypeError,
        "ColumnParallelLinear: group is not a ReplicaGrouping, got 2",
        on(COLUMNS(4, group=2), (2, 3)),  # type: ignore[arg-type]
    ),
    "columns: axis out of range": (
        errors.AttributeValueError,
        r"ColumnParallelLinear: sequence_axis is out of range, got 2, expected one of shape \(2, 3\) but the last",
        on(COLUMNS(4, sequence_axis=2), (2, 3)),
    ),
    "columns: axis of the features": (
        errors.AttributeValueError,
        r"ColumnParallelLinear: sequence_axis is the axis of the features, got -1 of shape \(2, 3\), expected another",
        on(COLUMNS(4, sequence_axis=-1), (2, 3)),
    ),
    "columns: axis is not an int": (
        errors.ArgumentTypeError,
        "ColumnParallelLinear: sequence_axis.* got 'sequence'",
        on(COLUMNS(4, sequence_axis="sequence"), (2, 3)),  # type: ignore[arg-type]
    ),
    "columns: weight": (
        errors.ShapeError,
        r"ColumnParallelLinear: weight has another initial shape, got \(4, 3\), expected \(3, 4\)",
        on(COLUMNS(4, initial_weight=np.ones((4, 3))), (2, 3)),
    ),
    "columns: bias of a function": (
        errors.ShapeError,
        r"ColumnParallelLinear: bias has another initial shape, got \(1,\), expected \(4,\)",
        on(COLUMNS(4, initial_bias=lambda: np.ones(1)), (2, 3)),
    ),
    "columns: bias that is not wanted": (
        errors.AttributeValueError,
        "ColumnParallelLinear: initial_bias without a bias",
        lambda: COLUMNS(4, bias=False, initial_bias=np.ones(4)),
    ),
    "rows: features": (
        errors.AttributeValueError,
        "RowParallelLinear: out_features: got -1, expected an int from 1",
        lambda: ROWS(-1),
    ),
    "rows: features do not divide": (
        errors.ShapeError,
        f"RowParallelLinear: features of x {SHARED_OUT} 3 for groups of 2 replicas, expected a multiple",
        on(ROWS(4, group=PAIRS, input_is_parallel=False), (2, 3)),
    ),
    "rows: sequence does not divide": (
        errors.ShapeError,
        f"RowParallelLinear: sequence {SHARED_OUT} 6 for groups of 4 replicas, expected a multiple",
        on(ROWS(4, sequence_axis=0), (6, 3)),
    ),
    "rows: axis of the features": (
        errors.AttributeValueError,
        "RowParallelLinear: sequence_axis is the axis of the features, got 0 of shape",
        on(ROWS(4, sequence_axis=0), (6,)),
    ),
    "rows: scalar": (errors.ShapeError, "RowParallelLinear: x has too few axes", on(ROWS(4), ())),
    "rows: integers": (
        errors.DTypeError,
        "RowParallelLinear: x is not of floats, got int32",
        on(ROWS(4), ((2,), I32)),
    ),
    "rows: group of other replicas": (
        errors.ReplicaError,
        "RowParallelLinear: grouping of another replica count, got 2, expected 4",
        on(ROWS(4, group=OF_TWO), (2, 3)),
    ),
    "rows: weight": (
        errors.ShapeError,
        r"RowParallelLinear: weight has another initial shape, got \(3, 4\), expected \(12, 4\)",
        on(ROWS(4, initial_weight=np.ones((3, 4))), (2, 3)),
    ),
    "rows: bias that is not wanted": (
        errors.AttributeValueError,
        "RowParallelLinear: initial_bias without a bias",
        lambda: ROWS(4, bias=False, initial_bias=np.ones(4)),
    ),
    "embedding: rows": (
        errors.AttributeValueError,
        "ParallelEmbedding: vocab_size: got 0",
        lambda: EMBEDDING(F32, 0, 4),
    ),
    "embedding: columns": (
        errors.AttributeValueError,
        "ParallelEmbedding: hidden_size: got 0",
        lambda: EMBEDDING(F32, 4, 0),
    ),
    "embedding: dtype": (
        errors.DTypeError,
        "ParallelEmbedding: dtype is not of floats, got int32",
        lambda: EMBEDDING(I32, 4, 4),
    ),
    "embedding: rows do not divide": (
        errors.ShapeError,
        f"ParallelEmbedding: vocab_size {SHARED_OUT} 50257 for groups of 4 replicas, expected a multiple",
        on(EMBEDDING(F32, 50257, 4), ((2,), I32)),
    ),
    "embedding: floats": (
        errors.DTypeError,
        "ParallelEmbedding: indices are not integers, got float32",
        on(EMBEDDING(F32, 4, 4), (2,)),
    ),
    "embedding: axis of the features": (
        errors.AttributeValueError,
        r"ParallelEmbedding: sequence_axis is the axis of the features, got 1 of shape \(2, 4\)",
        on(EMBEDDING(F32, 4, 4, sequence_axis=1), ((2,), I32)),
    ),
    "embedding: sequence does not divide": (
        errors.ShapeError,
        f"ParallelEmbedding: sequence {SHARED_OUT} 2 for groups of 4 replicas",
        on(EMBEDDING(F32, 4, 4, sequence_axis=0), ((2,), I32)),
    ),
    "embedding: group of other replicas": (
        errors.ReplicaError,
        "ParallelEmbedding: grouping of another replica count, got 2, expected 4",
        on(EMBEDDING(F32, 4, 4, OF_TWO), ((2,), I32)),
    ),
    "embedding: table": (
        errors.ShapeError,
        r"ParallelEmbedding: weight has another initial shape, got \(4,\), expected \(4, 1\)",
        on(EMBEDDING(F32, 4, 1, initial_weight=np.ones(4)), ((2,), I32)),
    ),
    "loss: reduction": (
        errors.AttributeValueError,
        "ParallelCrossEntropy: unknown reduction, got 'average', expected",
        lambda: LOSS(reduction="average"),  # type: ignore[arg-type]
    ),
    "loss: ignored label": (
        errors.ArgumentTypeError,
        "ParallelCrossEntropy: ignore_index is not an int, got 'pad'",
        lambda: LOSS(ignore_index="pad"),  # type: ignore[arg-type]
    ),
    "loss: labels of another shape": (
        errors.ShapeError,
        r"ParallelCrossEntropy: labels has another shape, got \(3,\), expected \(2,\)",
        on(LOSS(), (2, 3), ((3,), I32)),
    ),
    "loss: labels of floats": (
        errors.DTypeError,
        "ParallelCrossEntropy: labels are not integers, got float32",
        on(LOSS(), (2, 3), (2,)),
    ),
    "loss: logits of integers": (
        errors.DTypeError,
        "ParallelCrossEntropy: logits is not of floats, got int32",
        on(LOSS(), ((2, 3), I32), ((2,), I32)),
    ),
    "loss: scalar": (
        errors.ShapeError,
        "ParallelCrossEntropy: logits has too few axes",
        on(LOSS(), (), ((), I32)),
    ),
    "loss: group of other replicas": (
        errors.ReplicaError,
        "ParallelCrossEntropy: grouping of another replica count, got 2, expected 4",
        on(LOSS(OF_TWO), (2, 3), ((2,), I32)),
    ),
    "attention: heads": (
        errors.AttributeValueError,
        "ParallelAttention: heads: got 0",
        lambda: ATTENTION(0, 2),
    ),
    "attention: size of heads": (
        errors.AttributeValueError,
        "ParallelAttention: head_size: got 0",
        lambda: ATTENTION(2, 0),
    ),
    "attention: heads do not divide": (
        errors.ShapeError,
        f"ParallelAttention: heads {SHARED_OUT} 3 for groups of 2 replicas, expected a multiple",
        on(ATTENTION(3, 4, PAIRS), (2, 4, 6)),
    ),
    "attention: rank": (
        errors.ShapeError,
        r"ParallelAttention: x has another rank, got shape \(4, 6\), expected three axes",
        on(ATTENTION(4, 4), (4, 6)),
    ),
    "attention: integers": (
        errors.DTypeError,
        "ParallelAttention: x is not of floats, got int32",
        on(ATTENTION(4, 4), ((2, 4, 6), I32)),
    ),
    "attention: axis of the features": (
        errors.AttributeValueError,
        "ParallelAttention: sequence_axis is the axis of the features, got 2 of shape",
        on(ATTENTION(4, 4, sequence_axis=2), (2, 4, 6)),
    ),
    "attention: group of other replicas": (
        errors.ReplicaError,
        "ParallelAttention: grouping of another replica count, got 2, expected 4",
        on(ATTENTION(4, 4, OF_TWO), (2, 4, 6)),
    ),
    "attention: unknown variable": (
        errors.AttributeValueError,
        "ParallelAttention: initial names an unknown variable, got 'key.weight', expected one of q.weight, q.bias",
        lambda: ATTENTION(4, 4, initial={"key.weight": np.ones(2)}),
    ),
    "attention: bias that is not wanted": (
        errors.AttributeValueError,
        "ParallelAttention: initial names an unknown variable, got 'q.bias', expected one of q.weight, k.weight, v",
        lambda: ATTENTION(4, 4, bias=False, initial={"q.bias": np.ones(16)}),
    ),
    "attention: initial values": (
        errors.ArgumentTypeError,
        "ParallelAttention: initial is not a Mapping, got int 3",
        lambda: ATTENTION(4, 4, initial=3),  # type: ignore[arg-type]
    ),
    "attention: weight": (
        errors.ShapeError,
        r"ParallelAttention: k: weight has another initial shape, got \(2,\), expected \(6, 16\)",
        on(ATTENTION(4, 4, initial={"k.weight": np.ones(2)}), (2, 4, 6)),
    ),
    "attention: output weight": (
        errors.ShapeError,
        r"ParallelAttention: out: weight has another initial shape, got \(2,\), expected \(16, 6\)",
        on(ATTENTION(4, 4, initial={"out.weight": np.ones(2)}), (2, 4, 6)),
    ),
}


@pytest.mark.parametrize("row", REFUSED)
def test_refused(row: str) -> None:
    """A typed error of one line; the program of four replicas is as it was."""
    error, match, build = REFUSED[row]
    ir = popsr.Ir(replication=4)
    with ir.main_graph as graph, pytest.raises(error, match=match) as caught:
        build()
    assert isinstance(caught.value, popsr.Error)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) <= 500
    assert not graph.ops
    assert "graphs=1" in repr(ir)
