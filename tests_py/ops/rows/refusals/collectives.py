"""Collectives with tensors, groups or attributes that they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import popsr
from popsr import errors, ops
from popsr.ops import collectives
from tests_py.ops.rows.refusals.refusal import Refusal

F16, BF16, F32, F64, I32 = popsr.float16, popsr.bfloat16, popsr.float32, popsr.float64, popsr.int32
Shape, DType, Attr = errors.ShapeError, errors.DTypeError, errors.AttributeValueError
Graph, Replica, Argument = errors.GraphError, errors.ReplicaError, errors.ArgumentTypeError


OTHER_REPLICAS: dict[str, Callable[[popsr.Tensor, popsr.ReplicaGrouping], Any]] = {
    "replicated_broadcast": lambda t, group: collectives.replicated_broadcast(t, 0, group),
    "replicated_scan": lambda t, group: collectives.replicated_scan(t, group=group),
    "replicated_all_to_all": lambda t, group: collectives.replicated_all_to_all(t, 0, group),
    "replicated_slice": lambda t, group: collectives.replicated_slice(t, 0, group),
    "replica_sharded_slice": collectives.replica_sharded_slice,
    "replica_index": lambda t, group: ops.replica_index(group),
    "replicated_all_reduce_identical_inputs": lambda t, group: (
        collectives.replicated_all_reduce_identical_inputs(t, group=group)
    ),
    "replicated_all_reduce_identical_grad_inputs": lambda t, group: (
        collectives.replicated_all_reduce_identical_grad_inputs(t, group=group)
    ),
}
REFUSALS: list[Refusal] = [
    *(
        Refusal(
            "other-replicas",
            lambda t, call=call: call(t(4, 6), t.grouping),
            Replica,
            rf"{op}: group is of other replicas, got 2",
        )
        for op, call in OTHER_REPLICAS.items()
    ),
    Refusal(
        "unknown-op",
        lambda t: collectives.replicated_all_reduce(t(2), "local"),
        Attr,
        r"replicated_all_reduce: unknown op, got 'local', expected one of 'add', 'mean'",
    ),
    Refusal(
        "and",
        lambda t: collectives.replicated_all_reduce(t(2), "and"),
        DType,
        r"replicated_all_reduce: 'and' of floats, got f32\[2\]",
    ),
    Refusal(
        "bool",
        lambda t: collectives.replicated_all_reduce(t(2, kind=popsr.bool)),
        DType,
        r"replicated_all_reduce: 'add' of bool",
    ),
    Refusal(
        "group",
        lambda t: collectives.replicated_all_reduce(t(2), "add", t.grouping),
        Replica,
        r"replicated_all_reduce: group is of other replicas, got 2 replicas, expected 4",
    ),
    Refusal(
        "group-type",
        lambda t: collectives.replicated_all_gather(t(2), 0, 2),
        errors.Error,
        r"replicated_all_gather: group .*got 2",
    ),
    Refusal(
        "gather-axis",
        lambda t: collectives.replicated_all_gather(t(2), 1),
        Attr,
        r"replicated_all_gather: axis .* got 1",
    ),
    Refusal(
        "gather-mode",
        lambda t: collectives.replicated_all_gather(t(2), output_shape="stack"),
        Attr,
        r"replicated_all_gather: unknown output_shape, got 'stack', expected one of 'auto'",
    ),
    Refusal(
        "gather-meta",
        lambda t: collectives.replicated_all_gather(t(2), output_shape="meta_shape"),
        Shape,
        r"replicated_all_gather: input is not a shard of its meta shape",
    ),
    Refusal(
        "root",
        lambda t: collectives.replicated_broadcast(t(4, 6), 2, t.ir.replica_grouping(1, 2)),
        errors.OutOfRangeError,
        "replicated_broadcast: root is outside its group, got 2, expected 0 to 1",
    ),
    Refusal(
        "negative root",
        lambda t: collectives.replicated_broadcast(t(4, 6), -1),
        IndexError,
        "replicated_broadcast: root is outside its group, got -1",
    ),
    Refusal(
        "axis",
        lambda t: collectives.replicated_all_to_all(t(4, 6), 2),
        errors.AttributeValueError,
        "replicated_all_to_all: axis",
    ),
    Refusal(
        "parts",
        lambda t: collectives.replicated_all_to_all(t(4, 6), 1),
        errors.ShapeError,
        r"replicated_all_to_all: axis 1 does not divide into parts, got f32\[4, 6\] in groups of 4",
    ),
    Refusal(
        "slice",
        lambda t: collectives.replicated_slice(t(4, 6), -1),
        ValueError,
        "replicated_slice: axis 1 does not divide into parts",
    ),
    Refusal(
        "scalar",
        lambda t: collectives.replicated_slice(t()),
        errors.AttributeValueError,
        "replicated_slice: axis",
    ),
    Refusal(
        "too few",
        lambda t: collectives.replicated_permute(t(4, 6), [1, 0]),
        errors.ReplicaError,
        "replicated_permute: mapping is of other replicas, got 2 destinations, expected 4",
    ),
    Refusal(
        "destination",
        lambda t: collectives.replicated_permute(t(4, 6), [0, 4, 1, 2]),
        errors.OutOfRangeError,
        "replicated_permute: no such destination, got 4 for replica 1, expected 0 to 3 or -1",
    ),
    Refusal(
        "same destination",
        lambda t: collectives.replicated_permute(t(4, 6), {0: 1, 2: 1}),
        errors.ReplicaError,
        "replicated_permute: two sources of one replica, got 1 twice",
    ),
    Refusal(
        "same source",
        lambda t: collectives.replicated_permute(t(4, 6), [(0, 1), (0, 2)]),
        errors.ReplicaError,
        "replicated_permute: two destinations of one replica, got 0 twice",
    ),
    Refusal(
        "source",
        lambda t: collectives.replicated_permute(t(4, 6), [(9, 1)]),
        errors.OutOfRangeError,
        "replicated_permute: no such source, got 9, expected 0 to 3",
    ),
    Refusal(
        "no replica",
        lambda t: collectives.replicated_permute(t(4, 6), [0, 1.5, 2, 3]),
        errors.ArgumentTypeError,
        "replicated_permute: an item of mapping is not an int, got 1.5",
    ),
    Refusal(
        "no pair",
        lambda t: collectives.replicated_permute(t(4, 6), [(1, 2, 3)]),
        errors.ArgumentTypeError,
        r"replicated_permute: mapping is not a list of destinations, got \(1, 2, 3\)",
    ),
    Refusal(
        "no mapping",
        lambda t: collectives.replicated_permute(t(4, 6), "shift"),
        errors.ArgumentTypeError,
        "replicated_permute: mapping is not a sequence of replicas or pairs of replicas, got 'shift'",
    ),
    Refusal(
        "what",
        lambda t: ops.replica_index(what="me"),
        errors.AttributeValueError,
        "replica_index: unknown what, got 'me', expected one of 'index', 'group'",
    ),
    Refusal(
        "index dtype",
        lambda t: ops.replica_index(dtype=popsr.float32),
        errors.DTypeError,
        "replica_index: dtype is not an index type, got float32, expected int32 or uint32",
    ),
    Refusal(
        "reduction",
        lambda t: collectives.replicated_all_reduce_identical_inputs(t(4, 6), "mean"),
        errors.AttributeValueError,
        "replicated_all_reduce_identical_inputs: reduction has no such gradient, got 'mean', expected 'add'",
    ),
    Refusal(
        "no tensors",
        lambda t: collectives.all_reduce([]),
        errors.GraphError,
        "all_reduce: nothing to reduce, got no tensors",
    ),
    Refusal(
        "one tensor",
        lambda t: collectives.all_reduce(t(4, 6)),
        errors.ArgumentTypeError,
        "all_reduce: ts is not a Tensor list",
    ),
    Refusal(
        "unequal shapes",
        lambda t: collectives.all_reduce_identical_inputs([t(4, 6), t()], ipus=[0, 0]),
        errors.ShapeError,
        "all_reduce_identical_inputs: ",
    ),
    Refusal(
        "ipus",
        lambda t: collectives.all_reduce([t(4, 6), t(4, 6)], ipus=[0]),
        errors.AttributeValueError,
        "all_reduce: not one of ipus for each tensor, got 1, expected 2",
    ),
    Refusal(
        "mean of a scan",
        lambda t: collectives.replicated_scan(t(4, 6), "mean"),
        errors.AttributeValueError,
        "replicated_scan: members would have means of different numbers of values, got 'mean', expected 'add'",
    ),
]
