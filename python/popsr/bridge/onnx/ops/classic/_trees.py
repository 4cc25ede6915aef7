"""Ensembles of trees of the domain ``ai.onnx.ml``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Node, cast
from popsr.bridge.onnx._rules import NotSupportedError
from popsr.bridge.onnx._tensors import check_known, expanded, reshaped
from popsr.bridge.onnx._types import Array
from popsr.bridge.onnx.ops.classic._scores import (
    classic,
    labels_of,
    named,
    of_two,
    transformed,
    transformed_targets,
)

__all__: list[str] = []

_MODES: tuple[tuple[str, Callable[[Tensor, Tensor], Tensor]], ...] = (
    ("BRANCH_LEQ", ops.less_equal),
    ("BRANCH_LT", ops.less),
    ("BRANCH_GTE", ops.greater_equal),
    ("BRANCH_GT", ops.greater),
    ("BRANCH_EQ", ops.equal),
    ("BRANCH_NEQ", ops.not_equal),
)
"""Comparisons in the order of their numbers; the next one is membership in a set."""
_MEMBER = len(_MODES)
_TWO = 2


class Forest(NamedTuple):
    """Nodes of all trees in one table; leaves lead to themselves.

    Attributes:
        roots: the first node of each tree.
        features: the column that a node compares.
        values: the number that it is compared with.
        yes: the next node if the comparison holds.
        no: the next node if it does not.
        leaf: True for leaves.
        modes: the number of the comparison.
        missing: True where NaN holds.
        sets: members of the set of a node, rows of equal length filled with NaN; None without sets.
    """

    roots: Array
    features: Array
    values: Array
    yes: Array
    no: Array
    leaf: Array
    modes: Array
    missing: Array
    sets: Array | None = None

    def depth(self) -> int:
        """Branches of the longest way from a root to a leaf."""
        level, depth = self.roots[~self.leaf[self.roots]], 0
        while len(level):
            depth += 1
            if depth > len(self.leaf):
                raise ValueError("a tree with a cycle")
            level = np.unique(np.concatenate([self.yes[level], self.no[level]]))
            level = level[~self.leaf[level]]
        return depth


class Votes(NamedTuple):
    """Weights of leaves, ``[nodes, columns]``, and where there are any."""

    weights: Array
    given: Array


def _numbers(node: Node, name: str, kind: dtypes.dtype) -> Array:
    """Numbers of an attribute, which may be a tensor of the type of the operand."""
    if not node.has(f"{name}_as_tensor"):
        return np.asarray(node.floats(name, ()), kind.as_numpy())
    found = node.array(f"{name}_as_tensor").reshape(-1)
    if found.size and found.dtype != kind.as_numpy():
        raise NotSupportedError(f"{name} of {found.dtype} for an operand of {kind.name}")
    return found


def _operand(t: Tensor) -> Tensor:
    """Floats of 32 or 64 bits."""
    return t if t.dtype == dtypes.float64 else cast(t, dtypes.float32)


def _forest(node: Node, kind: dtypes.dtype) -> tuple[Forest, dict[tuple[int, int], int]]:
    """Nodes with leaves among them, as before version 5; and the row of each by tree and number."""
    trees, numbers = node.ints("nodes_treeids"), node.ints("nodes_nodeids")
    index = {key: place for place, key in enumerate(zip(trees, numbers, strict=True))}
    texts = node.texts("nodes_modes")
    known = {name: number for number, (name, _) in enumerate(_MODES)}
    other = sorted(set(texts) - known.keys() - {"LEAF"})
    if other:
        raise NotSupportedError(f"comparison {other[0]}")
    leaf = np.asarray([mode == "LEAF" for mode in texts])
    here = np.arange(len(texts))
    ways = []
    for name in ("nodes_truenodeids", "nodes_falsenodeids"):
        to = [here[i] if leaf[i] else index[trees[i], each] for i, each in enumerate(node.ints(name))]
        ways.append(np.asarray(to, np.int32))
    below = set(np.concatenate([way[~leaf] for way in ways]).tolist())
    roots = np.asarray([i for i in here if i not in below], np.int32)
    if len({trees[i] for i in roots}) != len(roots):
        raise ValueError("a tree with several roots")
    missing = node.ints("nodes_missing_value_tracks_true", ()) or (0,) * len(texts)
    made = Forest(
        roots,
        np.where(leaf, 0, np.asarray(node.ints("nodes_featureids"))).astype(np.int32),
        _numbers(node, "nodes_values", kind),
        ways[0],
        ways[1],
        leaf,
        np.asarray([known.get(mode, -1) for mode in texts], np.int32),
        np.asarray(missing, bool),
    )
    return made, index


_REDUCED: dict[str, tuple[Any, float]] = {
    "SUM": (np.add, 0.0),
    "AVERAGE": (np.add, 0.0),
    "MIN": (np.minimum, np.inf),
    "MAX": (np.maximum, -np.inf),
}
"""Functions that join the votes of one leaf, and the number of no vote, by the aggregation."""
_NAMES = ("AVERAGE", "SUM", "MIN", "MAX")


def _votes(
    rows: Sequence[int], columns: Sequence[int], weights: Array, shape: tuple[int, int], how: str
) -> Votes:
    check_known(shape[0] * shape[1])
    join, none = _REDUCED[how]
    table, given = np.full(shape, none, weights.dtype), np.zeros(shape, bool)
    if not len(rows) == len(columns) == len(weights):
        raise ValueError(f"{len(weights)} weights of {len(rows)} leaves")
    join.at(table, (list(rows), list(columns)), weights)
    given[list(rows), list(columns)] = True
    return Votes(table, given)


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
            (forest.values, t.dtype),
            (forest.yes, dtypes.int32),
            (forest.no, dtypes.int32),
        )
    ]
    for _ in range(forest.depth()):
        feature, value, yes, no = (ops.gather(table, at, 0) for table in tables)
        element = ops.gather(flat, ops.add(feature, begin), 0)
        holds = _compared(node, forest, at, element, value)
        if forest.missing.any():
            tracks = ops.gather(node.constant(forest.missing, dtypes.bool), at, 0)
            holds = ops.logical_or(holds, ops.logical_and(ops.isnan(element), tracks))
        at = ops.where(holds, yes, no)
    return at


def _compared(node: Node, forest: Forest, at: Tensor, element: Tensor, value: Tensor) -> Tensor:
    """Whether the comparison of each node holds."""
    modes = sorted(set(forest.modes[~forest.leaf].tolist()))
    made: Tensor | None = None
    for mode in modes:
        if mode == _MEMBER:
            sets = ops.gather(node.constant(forest.sets, element.dtype), at, 0)
            own = ops.equal(reshaped(element, (*element.shape, 1)), sets)
            holds = ops.greater(ops.sum(cast(own, dtypes.int32), [2], False), node.constant(0, dtypes.int32))
        else:
            holds = _MODES[mode][1](element, value)
        if made is None:
            made = holds
        else:
            own_mode = ops.gather(node.constant(forest.modes == mode, dtypes.bool), at, 0)
            made = ops.where(own_mode, holds, made)
    assert made is not None
    return made


def _aggregated(node: Node, leaves: Tensor, votes: Votes, how: str, kind: dtypes.dtype) -> Tensor:
    """Scores of columns; MIN and MAX of the votes that there are, 0 of none."""
    found = ops.gather(node.constant(votes.weights, kind), leaves, 0)
    if how == "SUM":
        return ops.sum(found, [1], False)
    if how == "AVERAGE":
        return ops.mean(found, [1], False)
    made = (ops.min if how == "MIN" else ops.max)(found, [1], False)
    none = node.like(_REDUCED[how][1], made)
    return ops.where(ops.equal(made, none), node.like(0, made), made)


def _classic_scores(node: Node, t: Tensor, prefix: str, columns: int) -> tuple[Tensor, Tensor, Votes]:
    """Scores before base values, the leaves, and what they vote for."""
    how = node.text("aggregate_function", "SUM")
    if how not in _REDUCED:
        raise NotSupportedError(f"aggregate_function {how}")
    forest, places = _forest(node, t.dtype)
    keys = zip(node.ints(f"{prefix}_treeids"), node.ints(f"{prefix}_nodeids"), strict=True)
    weights = _numbers(node, f"{prefix}_weights", t.dtype)
    rows = [places[key] for key in keys]
    votes = _votes(rows, node.ints(f"{prefix}_ids"), weights, (len(forest.leaf), columns), how)
    leaves = _leaves(node, t, forest)
    return _aggregated(node, leaves, votes, how, t.dtype), leaves, votes


def _with_base(node: Node, scores: Tensor, base: Array) -> Tensor:
    if base.size not in (0, scores.shape[1]):
        raise ValueError(f"{base.size} base values of {scores.shape[1]} columns")
    return ops.add(scores, node.like(base, scores)) if base.size else scores


@classic("TreeEnsembleRegressor")
def _tree_regressor(node: Node, t: Tensor) -> Tensor:
    t = _operand(t)
    scores, _, _ = _classic_scores(node, t, "target", node.integer("n_targets", 1))
    made = _with_base(node, scores, _numbers(node, "base_values", t.dtype))
    return cast(transformed_targets(node, made, node.text("post_transform", "NONE")), dtypes.float32)


@classic("TreeEnsembleClassifier")
def _tree_classifier(node: Node, t: Tensor) -> list[Tensor]:
    """The class of the greatest score among those that have a vote or a base value."""
    t = _operand(t)
    labels, post = labels_of(node, "classlabels_int64s"), node.text("post_transform", "NONE")
    scores, leaves, votes = _classic_scores(node, t, "class", len(labels))
    base = _numbers(node, "base_values", t.dtype)
    if len(labels) == _TWO:
        return _of_two_classes(node, labels, scores, base, post)
    seen = scores = _with_base(node, scores, base)
    if not base.size and not _is_always_voted(votes.given, leaves):
        some = ops.gather(node.constant(votes.given.astype(np.int32), dtypes.int32), leaves, 0)
        voted = ops.greater(ops.sum(some, [1], False), node.constant(0, dtypes.int32))
        seen = ops.where(voted, scores, node.like(-np.inf, scores))
    made = cast(transformed(node, scores, post), dtypes.float32)
    return [named(node, labels, ops.argmax(seen, 1, False)), made]


def _is_always_voted(given: Array, leaves: Tensor) -> bool:
    """True if each leaf that votes at all votes for all columns."""
    return bool(leaves.shape[1] and given[given.any(1)].all())


def _of_two_classes(node: Node, labels: Array, scores: Tensor, base: Array, post: str) -> list[Tensor]:
    """Two classes whose leaves vote for one alone: for the first, the score is that of the second."""
    voted = set(node.ints("class_ids"))
    if len(voted) != 1 or base.size > 1 or (base.size and voted != {0}):
        raise NotSupportedError("votes for both of two classes, or their base values")
    are_shares = bool((_numbers(node, "class_weights", scores.dtype) >= 0).all())
    (column,) = voted
    own = ops.slice(scores, column, column + 1, 1, 1)
    own = ops.add(own, node.like(base, own)) if base.size else own
    edge = node.like(0.5 if are_shares else 0.0, own)
    label = named(node, labels, cast(reshaped(ops.greater(own, edge), (own.shape[0],)), dtypes.int32))
    if column:
        return [label, cast(transformed(node, scores, post), dtypes.float32)]
    return [label, cast(of_two(node, own, are_shares, post), dtypes.float32)]


_POSTS = {0: "NONE", 3: "SOFTMAX_ZERO"}


@classic("TreeEnsemble", since=5)
def _tree_ensemble(node: Node, t: Tensor) -> Tensor:
    """Nodes and leaves in tables of their own."""
    columns, how = node.integer("n_targets", 1), _NAMES[node.integer("aggregate_function", 1)]
    modes, splits = node.array("nodes_modes").reshape(-1), node.array("nodes_splits").reshape(-1)
    weights = node.array("leaf_weights").reshape(-1)
    if {splits.dtype, weights.dtype} != {t.dtype.as_numpy()}:
        raise NotSupportedError(f"thresholds of {splits.dtype} for an operand of {t.dtype.name}")
    count, ends = len(modes), np.arange(len(weights))
    ways = []
    for side in ("true", "false"):
        to, is_leaf = (np.asarray(node.ints(f"nodes_{side}{name}")) for name in ("nodeids", "leafs"))
        ways.append(np.concatenate([np.where(is_leaf != 0, to + count, to), ends + count]).astype(np.int32))
    if any(((way < 0) | (way >= count + len(weights))).any() for way in ways):
        raise IndexError("a node or leaf that is not there")
    zeros = np.zeros(len(weights), np.int32)
    missing = node.ints("nodes_missing_value_tracks_true", ()) or (0,) * count
    forest = Forest(
        np.asarray(node.ints("tree_roots"), np.int32),
        np.concatenate([np.asarray(node.ints("nodes_featureids"), np.int32), zeros]),
        np.concatenate([splits, zeros.astype(splits.dtype)]),
        ways[0],
        ways[1],
        np.concatenate([np.zeros(count, bool), zeros == 0]),
        np.concatenate([modes.astype(np.int32), zeros - 1]),
        np.concatenate([np.asarray(missing, bool), zeros != 0]),
        _sets(node, modes, len(weights), splits.dtype),
    )
    votes = _votes(
        (ends + count).tolist(), node.ints("leaf_targetids"), weights, (len(forest.leaf), columns), how
    )
    made = _aggregated(node, _leaves(node, t, forest), votes, how, t.dtype)
    post = node.integer("post_transform", 0)
    if post not in _POSTS:
        raise NotSupportedError(f"post_transform {post}, of which readers have different numbers")
    return transformed_targets(node, made, _POSTS[post])


def _sets(node: Node, modes: Array, leaves: int, kind: np.dtype[Any]) -> Array | None:
    """The members of each node that tests membership; NaN separates the sets."""
    if (modes > _MEMBER).any():
        raise ValueError("a comparison that is not there")
    where = np.flatnonzero(modes == _MEMBER)
    if not len(where):
        return None
    values = node.array("membership_values").reshape(-1)
    parts = [part[~np.isnan(part)] for part in np.split(values, np.flatnonzero(np.isnan(values)))]
    parts = parts[: len(where)] if len(parts) == len(where) + 1 and not len(parts[-1]) else parts
    if len(parts) != len(where):
        raise ValueError(f"{len(parts)} sets of {len(where)} nodes")
    widest = max(map(len, parts))
    check_known((len(modes) + leaves) * widest)
    table = np.full((len(modes) + leaves, widest), np.nan, kind)
    for row, part in zip(where, parts, strict=True):
        table[row, : len(part)] = part
    return table
