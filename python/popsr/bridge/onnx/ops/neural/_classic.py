"""Linear models, ensembles of trees and scalers of the domain ``ai.onnx.ml``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from popsr import dtypes, ops
from popsr.bridge.onnx._node import Node, cast
from popsr.bridge.onnx._rules import NotSupportedError, rule
from popsr.bridge.onnx._tensors import check_known, expanded, reshaped
from popsr.bridge.onnx._types import Array
from popsr.tensor import Tensor

__all__: list[str] = []

DOMAIN = "ai.onnx.ml"
_classic = functools.partial(rule, domain=DOMAIN)


@_classic("Scaler")
def _scaler(node: Node, t: Tensor) -> Tensor:
    t = cast(t, dtypes.float32)
    moved = ops.sub(t, node.like(np.asarray(node.floats("offset", (0.0,)), np.float32), t))
    return ops.mul(moved, node.like(np.asarray(node.floats("scale", (1.0,)), np.float32), t))


@_classic("Normalizer")
def _normalizer(node: Node, t: Tensor) -> Tensor:
    """Rows over their length; rows of zeros stay."""
    t, norm = cast(t, dtypes.float32), node.text("norm", "MAX")
    lengths: dict[str, Callable[[], Tensor]] = {
        "MAX": lambda: ops.max(ops.abs(t), [t.rank - 1], True),
        "L1": lambda: ops.l1(t, [t.rank - 1], True),
        "L2": lambda: ops.l2(t, [t.rank - 1], True),
    }
    if norm not in lengths:
        raise NotSupportedError(f"norm {norm}")
    length = lengths[norm]()
    return ops.div(t, ops.where(ops.equal(length, node.like(0, t)), node.like(1, t), length))


@_classic("Binarizer")
def _binarizer(node: Node, t: Tensor) -> Tensor:
    return cast(ops.greater(t, node.like(node.number("threshold", 0.0), t)), t.dtype)


@_classic("ArrayFeatureExtractor")
def _features(_node: Node, t: Tensor, indices: Tensor) -> Tensor:
    made = ops.gather(t, reshaped(indices, (indices.nelms,)), t.rank - 1)
    return made if t.rank > 1 else reshaped(made, (1, indices.nelms))


@_classic("ZipMap")
def _zip_map(_node: Node, _scores: Tensor) -> Tensor:
    raise NotSupportedError("a list of maps: make its operand an output of the model")


# Results


def _transformed(node: Node, scores: Tensor) -> Tensor:
    how = node.text("post_transform", "NONE")
    if how == "NONE":
        return scores
    if how == "LOGISTIC":
        return ops.sigmoid(scores)
    if how == "SOFTMAX":
        return ops.softmax(scores, scores.rank - 1)
    raise NotSupportedError(f"post_transform {how}")


def _labels(node: Node, name: str) -> Array:
    if node.has("classlabels_strings") and node.texts("classlabels_strings"):
        raise NotSupportedError("labels that are strings")
    return np.asarray(node.ints(name, ()), np.int64)


def _named(node: Node, labels: Array, number: Tensor) -> Tensor:
    """Labels of numbers of classes."""
    return ops.gather(node.constant(labels, dtypes.int64), number, 0)


# Linear models


def _linear(node: Node, t: Tensor, rows: int) -> Tensor:
    weights = np.asarray(node.floats("coefficients"), np.float32).reshape(rows, -1)
    made = ops.matmul(cast(t, dtypes.float32), node.constant(weights.T, dtypes.float32))
    shift = np.asarray(node.floats("intercepts", ()), np.float32)
    return ops.add(made, node.like(shift, made)) if shift.size else made


@_classic("LinearRegressor")
def _linear_regressor(node: Node, t: Tensor) -> Tensor:
    return _transformed(node, _linear(node, t, node.integer("targets", 1)))


@_classic("LinearClassifier")
def _linear_classifier(node: Node, t: Tensor) -> list[Tensor]:
    labels = _labels(node, "classlabels_ints")
    if len(node.floats("coefficients")) != t.shape[-1] * len(labels):
        raise NotSupportedError("one score for two classes")
    scores = _linear(node, t, len(labels))
    return [_named(node, labels, ops.argmax(scores, 1, False)), _transformed(node, scores)]


# Trees


class Forest(NamedTuple):
    """Nodes of all trees in one table; leaves lead to themselves.

    Attributes:
        roots: the first node of each tree.
        depth: most branches on a way.
        features: the column that a node compares.
        values: the number that it is compared with.
        yes: the next node if the comparison holds.
        no: the next node if it does not.
        mode: the comparison of all nodes.
        missing: True where NaN holds.
        places: rows of nodes by tree and number.
    """

    roots: Array
    depth: int
    features: Array
    values: Array
    yes: Array
    no: Array
    mode: str
    missing: Array
    places: dict[tuple[int, int], int]


_MODES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "BRANCH_LEQ": ops.less_equal,
    "BRANCH_LT": ops.less,
    "BRANCH_GTE": ops.greater_equal,
    "BRANCH_GT": ops.greater,
    "BRANCH_EQ": ops.equal,
    "BRANCH_NEQ": ops.not_equal,
}


def _forest(node: Node) -> Forest:
    trees, numbers = node.ints("nodes_treeids"), node.ints("nodes_nodeids")
    index = {key: place for place, key in enumerate(zip(trees, numbers, strict=True))}
    modes = node.texts("nodes_modes")
    kinds = {mode for mode in modes if mode != "LEAF"} or {"BRANCH_LEQ"}
    if len(kinds) > 1 or not kinds <= _MODES.keys():
        raise NotSupportedError(f"comparisons {', '.join(sorted(kinds))}")
    if node.has("nodes_values_as_tensor"):
        raise NotSupportedError("of float64")
    leaf = np.asarray([mode == "LEAF" for mode in modes])
    here = np.arange(len(modes))
    ways = []
    for name in ("nodes_truenodeids", "nodes_falsenodeids"):
        to = [here[i] if leaf[i] else index[trees[i], each] for i, each in enumerate(node.ints(name))]
        ways.append(np.asarray(to, np.int32))
    missing = node.ints("nodes_missing_value_tracks_true", ()) or (0,) * len(modes)
    below = set(np.concatenate([way[~leaf] for way in ways]).tolist())
    roots = np.asarray([i for i in here if i not in below], np.int32)
    if len({trees[i] for i in roots}) != len(roots):
        raise ValueError("a tree with several roots")
    return Forest(
        roots,
        _depth(roots, ways[0], ways[1], leaf),
        np.where(leaf, 0, np.asarray(node.ints("nodes_featureids"))).astype(np.int32),
        np.asarray(node.floats("nodes_values"), np.float32),
        ways[0],
        ways[1],
        next(iter(kinds)),
        np.asarray(missing, bool),
        index,
    )


def _depth(roots: Array, yes: Array, no: Array, leaf: Array) -> int:
    """Branches of the longest way from a root to a leaf."""
    level, depth = roots[~leaf[roots]], 0
    while len(level):
        depth += 1
        if depth > len(leaf):
            raise ValueError("a tree with a cycle")
        level = np.unique(np.concatenate([yes[level], no[level]]))
        level = level[~leaf[level]]
    return depth


def _leaves(node: Node, t: Tensor, forest: Forest) -> Tensor:
    """The leaf of each row in each tree, ``[rows, trees]``."""
    rows, columns = t.shape
    check_known(rows * len(forest.roots))
    flat = reshaped(t, (rows * columns,))
    begin = node.constant((np.arange(rows) * columns)[:, None].astype(np.int32), dtypes.int32)
    at = expanded(node.constant(forest.roots[None], dtypes.int32), (rows, len(forest.roots)))
    tables = [
        node.constant(each, kind)
        for each, kind in (
            (forest.features, dtypes.int32),
            (forest.values, dtypes.float32),
            (forest.yes, dtypes.int32),
            (forest.no, dtypes.int32),
        )
    ]
    for _ in range(forest.depth):
        feature, value, yes, no = (ops.gather(table, at, 0) for table in tables)
        element = ops.gather(flat, ops.add(feature, begin), 0)
        holds = _MODES[forest.mode](element, value)
        if forest.missing.any():
            tracks = ops.gather(node.constant(forest.missing, dtypes.bool), at, 0)
            holds = ops.logical_or(holds, ops.logical_and(ops.isnan(element), tracks))
        at = ops.where(holds, yes, no)
    return at


def _votes(node: Node, forest: Forest, prefix: str, columns: int) -> Array:
    """Weights of leaves, ``[nodes, columns]``."""
    check_known(len(forest.values) * columns)
    table = np.zeros((len(forest.values), columns), np.float32)
    keys = zip(node.ints(f"{prefix}_treeids"), node.ints(f"{prefix}_nodeids"), strict=True)
    for key, column, weight in zip(
        keys, node.ints(f"{prefix}_ids"), node.floats(f"{prefix}_weights"), strict=True
    ):
        table[forest.places[key], column] += weight
    return table


def _aggregated(node: Node, t: Tensor, prefix: str, columns: int) -> Tensor:
    forest = _forest(node)
    table = node.constant(_votes(node, forest, prefix, columns), dtypes.float32)
    votes = ops.gather(table, _leaves(node, cast(t, dtypes.float32), forest), 0)
    how: dict[str, Callable[[], Any]] = {
        "SUM": lambda: ops.sum(votes, [1], False),
        "AVERAGE": lambda: ops.mean(votes, [1], False),
        "MIN": lambda: ops.min(votes, [1], False),
        "MAX": lambda: ops.max(votes, [1], False),
    }
    made: Tensor = how[node.text("aggregate_function", "SUM")]()
    base = np.asarray(node.floats("base_values", ()), np.float32)
    return ops.add(made, node.like(base, made)) if base.size else made


@_classic("TreeEnsembleRegressor")
def _tree_regressor(node: Node, t: Tensor) -> Tensor:
    return _transformed(node, _aggregated(node, t, "target", node.integer("n_targets", 1)))


_TWO = 2


@_classic("TreeEnsembleClassifier")
def _tree_classifier(node: Node, t: Tensor) -> list[Tensor]:
    """Of two classes whose leaves vote for one alone, the other has the rest, or the opposite score."""
    labels, voted = _labels(node, "classlabels_int64s"), set(node.ints("class_ids"))
    if len(labels) != _TWO:
        scores = _aggregated(node, t, "class", len(labels))
        return [_named(node, labels, ops.argmax(scores, 1, False)), _transformed(node, scores)]
    if len(voted) != 1 or not voted <= {0, 1} or node.floats("base_values", ()):
        raise NotSupportedError("votes for both of two classes, or their base values")
    (column,) = voted
    own = ops.slice(_aggregated(node, t, "class", 2), column, column + 1, 1, 1)
    return _of_two(node, labels, own, min(node.floats("class_weights")) >= 0)


def _of_two(node: Node, labels: Array, own: Tensor, are_shares: bool) -> list[Tensor]:
    """Label and scores of two classes, from the score of the second."""
    edge = node.like(0.5 if are_shares else 0.0, own)
    number = cast(reshaped(ops.greater(own, edge), (own.shape[0],)), dtypes.int32)
    how = node.text("post_transform", "NONE")
    if how == "NONE":
        other = ops.sub(node.like(1, own), own) if are_shares else ops.negate(own)
        scores: Sequence[Tensor] = (other, own)
    elif how == "LOGISTIC" and not are_shares:
        scores = (ops.sigmoid(ops.negate(own)), ops.sigmoid(own))
    else:
        raise NotSupportedError(f"post_transform {how} of two classes")
    return [_named(node, labels, number), ops.concat(list(scores), 1)]
