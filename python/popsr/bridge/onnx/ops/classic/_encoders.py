"""Scalers, encoders and what moves features of the domain ``ai.onnx.ml``."""

from __future__ import annotations

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Node, cast, is_float
from popsr.bridge.onnx._rules import NotSupportedError
from popsr.bridge.onnx._tensors import expanded, reshaped
from popsr.bridge.onnx._train.trained import is_floating
from popsr.bridge.onnx._types import Array
from popsr.bridge.onnx.ops.classic._scores import classic

__all__: list[str] = []


@classic("Scaler")
def _scaler(node: Node, t: Tensor) -> Tensor:
    t = cast(t, dtypes.float32)
    moved = ops.sub(t, node.like(np.asarray(node.floats("offset", (0.0,)), np.float32), t))
    return ops.mul(moved, node.like(np.asarray(node.floats("scale", (1.0,)), np.float32), t))


@classic("Normalizer")
def _normalizer(node: Node, t: Tensor) -> Tensor:
    """Rows over their length; rows of zeros stay."""
    t, norm = cast(t, dtypes.float32), node.text("norm", "MAX")
    if norm not in ("L1", "L2"):
        raise NotSupportedError(f"norm {norm}, of which readers take the sign or do not")
    length = (ops.l1 if norm == "L1" else ops.l2)(t, [t.rank - 1], True)
    return ops.div(t, ops.where(ops.equal(length, node.like(0, t)), node.like(1, t), length))


@classic("Binarizer")
def _binarizer(node: Node, t: Tensor) -> Tensor:
    return cast(ops.greater(t, node.like(node.number("threshold", 0.0), t)), t.dtype)


@classic("ArrayFeatureExtractor")
def _features(_node: Node, t: Tensor, indices: Tensor) -> Tensor:
    made = ops.gather(t, reshaped(indices, (indices.nelms,)), t.rank - 1)
    return made if t.rank > 1 else reshaped(made, (1, indices.nelms))


@classic("ZipMap")
def _zip_map(node: Node, scores: Tensor) -> Tensor:
    """The columns that maps by label would hold, in the order of the labels."""
    labels = node.texts("classlabels_strings", ()) or node.ints("classlabels_int64s", ())
    if len(labels) != scores.shape[-1]:
        raise ValueError(f"{len(labels)} labels of {scores.shape[-1]} columns")
    return scores


@classic("FeatureVectorizer")
def _feature_vectorizer(node: Node, *parts: Tensor) -> Tensor:
    rows = [reshaped(each, (1, each.nelms)) if each.rank == 1 else each for each in parts]
    wanted = node.ints("inputdimensions", tuple(each.shape[1] for each in rows))
    if tuple(each.shape[1] for each in rows) != wanted:
        raise NotSupportedError(f"inputdimensions {list(wanted)}")
    wide = [cast(each, dtypes.float32) for each in rows]
    return wide[0] if len(wide) == 1 else ops.concat(wide, 1)


# Encoders


@classic("Imputer")
def _imputer(node: Node, t: Tensor) -> Tensor:
    """Elements that equal a number, or are NaN where it is, become others: one, or one of each column."""
    if is_float(t.dtype):
        new, old = np.asarray(node.floats("imputed_value_floats")), node.number("replaced_value_float", 0.0)
    else:
        new, old = np.asarray(node.ints("imputed_value_int64s")), node.integer("replaced_value_int64", 0)
    same = ops.isnan(t) if np.isnan(old) else ops.equal(t, node.like(old, t))
    other = node.like(new.reshape(() if new.size == 1 else (-1,)), t)
    return ops.where(same, expanded(other, t.shape), t)


def _is_one_of(node: Node, t: Tensor, keys: Array) -> Tensor:
    """True where an element is a key, of each key on a last axis; NaN is NaN."""
    wide = reshaped(t, (*t.shape, 1))
    same = ops.equal(wide, node.like(keys, t))
    if not is_floating(keys) or not np.isnan(keys).any():
        return same
    return ops.logical_or(same, ops.logical_and(ops.isnan(wide), node.constant(np.isnan(keys), dtypes.bool)))


@classic("OneHotEncoder")
def _one_hot_encoder(node: Node, t: Tensor) -> Tensor:
    """With zeros for elements that are not a category."""
    if node.texts("cats_strings", ()):
        raise NotSupportedError("categories that are strings")
    if not node.integer("zeros", 1):
        raise NotSupportedError("zeros=0, which fails at an element that is not a category")
    keys = np.asarray(node.ints("cats_int64s"), np.int64)
    return cast(_is_one_of(node, cast(t, dtypes.int64), keys), dtypes.float32)


_NAN_SINCE = 4


@classic("LabelEncoder", since=2)
def _label_encoder(node: Node, t: Tensor) -> Tensor:
    """Values of keys; the default of elements that are not a key."""
    keys, values = _table(node, "keys"), _table(node, "values")
    if len(keys) != len(values):
        raise ValueError(f"{len(keys)} keys of {len(values)} values")
    if keys.dtype != t.dtype.as_numpy():
        raise NotSupportedError(f"keys of {keys.dtype} for {t.dtype.name}")
    if len(np.unique(keys)) != len(keys):
        raise NotSupportedError("equal keys, of which readers take different ones")
    if node.opset < _NAN_SINCE and is_floating(keys) and np.isnan(keys).any():
        raise NotSupportedError("a key that is NaN, which not all readers find before version 4")
    if node.has("default_tensor"):
        default = node.array("default_tensor").reshape(())
    else:
        whole = values.dtype.kind in "iu"
        default = np.asarray(
            node.integer("default_int64", -1) if whole else node.number("default_float", -0.0)
        )
    same = cast(_is_one_of(node, t, keys), dtypes.int32)
    kind = dtypes.dtype.as_dtype(values.dtype)
    found = ops.gather(node.constant(values, kind), ops.argmax(same, t.rank, False), 0)
    is_key = ops.greater(ops.sum(same, [t.rank], False), node.like(0, same))
    return ops.where(is_key, found, node.constant(default, kind))


@classic("LabelEncoder", since=1)
def _label_encoder_1(_node: Node, _t: Tensor) -> Tensor:
    raise NotSupportedError("labels that are strings")


def _table(node: Node, name: str) -> Array:
    """The keys or values of an encoder."""
    if node.has(f"{name}_tensor"):
        return node.array(f"{name}_tensor").reshape(-1)
    if node.has(f"{name}_int64s"):
        return np.asarray(node.ints(f"{name}_int64s"), np.int64)
    if node.has(f"{name}_floats"):
        return np.asarray(node.floats(f"{name}_floats"), np.float32)
    raise NotSupportedError(f"{name} that are strings")
