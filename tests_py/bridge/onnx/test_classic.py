"""Linear models, trees and scalers of ``ai.onnx.ml`` give onnxruntime's results."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from popsr.errors import UnsupportedOpsError

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from onnx import helper, numpy_helper  # noqa: E402

from popsr.bridge.onnx import load  # noqa: E402

DOMAIN = "ai.onnx.ml"
RNG = np.random.default_rng(2)
X = RNG.normal(size=(7, 4)).astype(np.float32)
X[3] = 0


def model(op_type: str, results: int, x: Any = X, version: int = 3, **attributes: Any) -> Any:
    node = helper.make_node(op_type, ["x"], ["y", "z"][:results], "here", domain=DOMAIN, **attributes)
    graph = helper.make_graph(
        [node],
        "classic",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [helper.make_empty_tensor_value_info(name) for name in ("y", "z")[:results]],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, version)], ir_version=8
    )


def trees(prefix: str, columns: list[int], depth: int = 3, sign: float = 1.0, **more: Any) -> dict[str, Any]:
    """Three random trees, whose leaves vote for the columns in turn."""
    rng = np.random.default_rng(3)
    fields: dict[str, list[Any]] = {
        name: []
        for name in (
            *("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids"),
            "missing_value_tracks_true",
        )
    }
    votes: dict[str, list[Any]] = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(3):
        for number in range(2 ** (depth + 1) - 1):
            leaf = number >= 2**depth - 1
            row = (tree, number, int(rng.integers(4)), float(rng.normal()), "LEAF" if leaf else "BRANCH_LEQ")
            ways = (0, 0) if leaf else (2 * number + 1, 2 * number + 2)
            for name, value in zip(fields, (*row, *ways, int(rng.integers(2))), strict=True):
                fields[name].append(value)
            if leaf:
                weight = sign * float(rng.uniform(0, 0.3)) if sign > 0 else float(rng.normal())
                for name, value in zip(
                    votes, (tree, number, columns[number % len(columns)], weight), strict=True
                ):
                    votes[name].append(value)
    made = {f"nodes_{name}": value for name, value in fields.items()}
    return {**made, **{f"{prefix}_{name}": value for name, value in votes.items()}, **more}


def wide(made: dict[str, Any]) -> dict[str, Any]:
    """Numbers of trees as tensors of float64."""
    names = ("nodes_values", "target_weights", "class_weights", "base_values")
    return {
        f"{name}_as_tensor" if name in names else name: numpy_helper.from_array(np.asarray(value), name)
        if name in names
        else value
        for name, value in made.items()
    }


def grove(members: bool = False, kind: Any = np.float32, **more: Any) -> dict[str, Any]:
    """Two trees of three nodes each, with leaves of their own, and one that is a leaf."""

    def tensor(values: Any, kind: Any = kind) -> Any:
        return numpy_helper.from_array(np.asarray(values, kind))

    modes = [0, 2, 6, 0, 1, 6, 0] if members else [0, 2, 3, 0, 1, 5, 0]
    sets = {"membership_values": tensor([0, 1, np.nan, 0, np.nan])} if members else {}
    return {
        "n_targets": 2, "tree_roots": [0, 3, 6], "nodes_modes": tensor(modes, np.uint8), **sets,
        "nodes_featureids": [0, 1, 2, 3, 0, 2, 0], "nodes_splits": tensor([0.1, -0.2, 0.3, 0, 0.5, 0, 0]),
        "nodes_truenodeids": [1, 0, 2, 4, 4, 6, 8], "nodes_trueleafs": [0, 1, 1, 0, 1, 1, 1],
        "nodes_falsenodeids": [2, 1, 3, 5, 5, 7, 8], "nodes_falseleafs": [0, 1, 1, 0, 1, 1, 1],
        "leaf_targetids": [0, 1, 0, 1, 1, 0, 1, 0, 0], "nodes_missing_value_tracks_true": [1, 0, 0, 1, 1, 0, 0],
        "leaf_weights": tensor([0.5, -1, 2, 0.25, 1, 3, -2, 0.1, 0.7]), **more,
    }  # fmt: skip


def mixed() -> dict[str, Any]:
    made = trees("target", [0], n_targets=1)
    names = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
    made["nodes_modes"] = [
        each if each == "LEAF" else names[i % len(names)] for i, each in enumerate(made["nodes_modes"])
    ]
    return made


W = [float(each) for each in RNG.normal(size=12)]
WHOLE = np.array([[3, -1], [2, 5], [-1, 0]])
GAPS = np.array([[0.5, np.nan, 1, 0.5], [np.nan, 0.5, 0.5, 2]], np.float32)
CASES: dict[str, Callable[[], Any]] = {
    "scaler": lambda: model("Scaler", 1, offset=[0.5, 1.0, -1.0, 0.0], scale=[2.0, 0.5, 1.0, 3.0]),
    "scaler of one number": lambda: model("Scaler", 1, offset=[0.5], scale=[2.0]),
    "normalizer L1": lambda: model("Normalizer", 1, norm="L1"),
    "normalizer L2": lambda: model("Normalizer", 1, norm="L2"),
    "binarizer": lambda: model("Binarizer", 1, threshold=0.25),
    "linear regressor": lambda: model(
        "LinearRegressor", 1, coefficients=W, intercepts=[0.1, 0.2, 0.3], targets=3
    ),
    **{
        f"linear regressor, {how}": functools.partial(
            model, "LinearRegressor", 1, coefficients=W, targets=3, post_transform=how
        )
        for how in ("LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")
    },
    "linear classifier": lambda: model(
        "LinearClassifier", 2, coefficients=W, intercepts=[0.1, 0.2, 0.3], classlabels_ints=[5, 7, 9],
        post_transform="SOFTMAX",
    ),
    "logistic regression": lambda: model(
        "LinearClassifier", 2, coefficients=W[:8], intercepts=[0.1, 0.2], classlabels_ints=[0, 1],
        post_transform="LOGISTIC", multi_class=1,
    ),
    "trees": lambda: model("TreeEnsembleRegressor", 1, **trees("target", [0], n_targets=1)),
    "trees of two targets": lambda: model(
        "TreeEnsembleRegressor", 1, **trees("target", [0, 1], n_targets=2)
    ),
    "mean of trees": lambda: model(
        "TreeEnsembleRegressor", 1, **trees("target", [0], n_targets=1, aggregate_function="AVERAGE")
    ),
    "trees with a base value": lambda: model(
        "TreeEnsembleRegressor", 1, **trees("target", [0], n_targets=1, base_values=[0.5])
    ),
    "classes": lambda: model(
        "TreeEnsembleClassifier", 2, **trees("class", [0, 1, 2], classlabels_int64s=[4, 5, 6])
    ),
    "shares of one class": lambda: model(
        "TreeEnsembleClassifier", 2, **trees("class", [0], classlabels_int64s=[0, 1])
    ),
    "boosted": lambda: model(
        "TreeEnsembleClassifier",
        2,
        **trees("class", [0], sign=-1.0, classlabels_int64s=[0, 1], post_transform="LOGISTIC"),
    ),
    "shares of the second class": lambda: model(
        "TreeEnsembleClassifier", 2, **trees("class", [1], classlabels_int64s=[4, 9], post_transform="LOGISTIC")
    ),
    "shares with a base value": lambda: model(
        "TreeEnsembleClassifier", 2, **trees("class", [0], classlabels_int64s=[4, 9], base_values=[0.3])
    ),
    "shares as logits": lambda: model(
        "TreeEnsembleClassifier", 2, **trees("class", [0], classlabels_int64s=[4, 9], post_transform="LOGISTIC")
    ),
    "least votes": lambda: model(
        "TreeEnsembleRegressor", 1, **trees("target", [0, 1], n_targets=2, aggregate_function="MIN")
    ),
    "trees of several comparisons": lambda: model("TreeEnsembleRegressor", 1, **mixed()),
    "trees of float64": lambda: model(
        "TreeEnsembleRegressor", 1, X.astype(np.float64), **wide(trees("target", [0], n_targets=1, base_values=[0.5]))
    ),
    "classes, one without votes": lambda: model(
        "TreeEnsembleClassifier", 2, **trees("class", [0, 2], sign=-1.0, classlabels_int64s=[4, 5, 6])
    ),
    "classes with base values": lambda: model(
        "TreeEnsembleClassifier",
        2,
        **trees("class", [0, 1, 2], classlabels_int64s=[4, 5, 6], base_values=[0.1, 0.0, 0.4]),
    ),
    "softmax without zeros": lambda: model(
        "TreeEnsembleClassifier",
        2,
        **trees("class", [0, 2], classlabels_int64s=[4, 5, 6], post_transform="SOFTMAX_ZERO"),
    ),
    **{
        f"trees with leaves of their own, {name}": functools.partial(model, "TreeEnsemble", 1, version=5, **given)
        for name, given in (
            ("sums", grove()),
            ("sets", grove(True)),
            ("means", grove(aggregate_function=0)),
            ("least", grove(aggregate_function=2)),
            ("greatest", grove(True, aggregate_function=3, post_transform=3)),
        )
    },
    "leaves of float64": lambda: model(
        "TreeEnsemble", 1, X.astype(np.float64), 5, **grove(kind=np.float64)
    ),
    "one score of two classes": lambda: model(
        "LinearClassifier", 2, coefficients=W[:4], intercepts=[0.1], classlabels_ints=[3, 8]
    ),
    "one score of two classes, logistic": lambda: model(
        "LinearClassifier", 2, coefficients=W[:4], intercepts=[0.1], classlabels_ints=[3, 8],
        post_transform="LOGISTIC",
    ),
    **{
        f"machine, {kind}": functools.partial(
            model, "SVMRegressor", 1, coefficients=[0.5, -1.0, 2.0], support_vectors=W, n_supports=3, rho=[0.3],
            kernel_type=kind, kernel_params=[0.4, 0.2, 3.0],
        )
        for kind in ("LINEAR", "RBF", "SIGMOID", "POLY")
    },
    "machine without vectors": lambda: model("SVMRegressor", 1, coefficients=W[:4], rho=[0.3], kernel_params=[0.0] * 3),
    "machine of one class": lambda: model(
        "SVMRegressor", 1, coefficients=[0.5, -1.0, 2.0], support_vectors=W, n_supports=3, rho=[0.3], one_class=1,
        kernel_type="RBF", kernel_params=[0.4, 0.0, 0.0],
    ),
    "imputer": lambda: model("Imputer", 1, GAPS, imputed_value_floats=[1.0, 2.0, 3.0, 4.0], replaced_value_float=0.5),
    "imputer of NaN": lambda: model("Imputer", 1, GAPS, imputed_value_floats=[7.0], replaced_value_float=float("nan")),
    "imputer of whole numbers": lambda: model(
        "Imputer", 1, WHOLE, imputed_value_int64s=[9], replaced_value_int64=-1
    ),
    "one-hot": lambda: model("OneHotEncoder", 1, WHOLE, cats_int64s=[3, -1, 2]),
    "one-hot of floats": lambda: model("OneHotEncoder", 1, X, cats_int64s=[1, 0]),
    "labels": lambda: model(
        "LabelEncoder", 1, WHOLE, keys_int64s=[3, -1, 2], values_floats=[0.5, 1.5, 2.5], default_float=-7.0
    ),
    "labels of floats": lambda: model(
        "LabelEncoder", 1, GAPS, 4, keys_floats=[0.5, float("nan")], values_int64s=[4, 5]
    ),
    "labels as tensors": lambda: model(
        "LabelEncoder", 1, WHOLE, 4, **{
            f"{name}_tensor": numpy_helper.from_array(np.array(each, kind))
            for name, each, kind in (
                ("keys", [3, 2], np.int64), ("values", [1.5, 2.5], np.float32), ("default", [9.5], np.float32)
            )
        }
    ),
    "features": lambda: model("FeatureVectorizer", 1, WHOLE, inputdimensions=[2]),
    "softmax of classes": lambda: model(
        "TreeEnsembleClassifier",
        2,
        **trees("class", [0, 1, 2], classlabels_int64s=[4, 5, 6], post_transform="SOFTMAX"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("missing", [False, True])
def test_values(name: str, missing: bool) -> None:
    proto = CASES[name]()
    kind = proto.graph.input[0].type.tensor_type
    rows = {len(each): each for each in (X, WHOLE, GAPS)}[kind.shape.dim[0].dim_value]
    x = rows.astype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    if missing and name.startswith(("trees", "classes")):
        x[::2, 1] = np.nan
    session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    truths = session.run(None, {"x": x})
    found = list(load(proto).run({"x": x}).values())
    assert [each.dtype for each in found] == [each.dtype for each in truths]
    for value, truth in zip(found, truths, strict=True):
        np.testing.assert_allclose(value, truth, rtol=1e-5, atol=1e-6)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a transform with two numbers": (
        lambda: model("TreeEnsemble", 1, version=5, **grove(post_transform=1)),
        "TreeEnsemble .post_transform 1, of which",
    ),
    "equal keys": (
        lambda: model("LabelEncoder", 1, WHOLE, keys_int64s=[1, 1], values_int64s=[2, 3]),
        "LabelEncoder .equal keys, of which",
    ),
    "a key that is NaN": (
        lambda: model("LabelEncoder", 1, GAPS, keys_floats=[float("nan")], values_int64s=[2]),
        "LabelEncoder .a key that is NaN",
    ),
    "a norm of two meanings": (lambda: model("Normalizer", 1), "Normalizer .norm MAX, of which"),
    "a transform of one target": (
        lambda: model("LinearRegressor", 1, coefficients=W[:4], post_transform="LOGISTIC"),
        "LinearRegressor .post_transform LOGISTIC of one target",
    ),
    "a transform of trees for one target": (
        lambda: model(
            "TreeEnsembleRegressor", 1, **trees("target", [0], n_targets=1, post_transform="SOFTMAX")
        ),
        "TreeEnsembleRegressor .post_transform SOFTMAX of one target",
    ),
    "labels that are strings": (
        lambda: model("LabelEncoder", 1, WHOLE, keys_int64s=[1], values_strings=["a"]),
        "LabelEncoder .values that are strings",
    ),
    "what must be a category": (
        lambda: model("OneHotEncoder", 1, WHOLE, cats_int64s=[1], zeros=0),
        "OneHotEncoder .zeros=0, which fails",
    ),
    "thresholds of another type": (
        lambda: model("TreeEnsembleRegressor", 1, **wide(trees("target", [0], n_targets=1))),
        "TreeEnsembleRegressor .nodes_values of float64 for an operand of float32",
    ),
    "strings": (
        lambda: model("LinearClassifier", 2, coefficients=W, classlabels_strings=["a", "b", "c"]),
        "LinearClassifier .labels that are strings",
    ),
    "both of two classes": (
        lambda: model("TreeEnsembleClassifier", 2, **trees("class", [0, 1], classlabels_int64s=[0, 1])),
        "TreeEnsembleClassifier .votes for both of two classes",
    ),
    "a transform": (
        lambda: model("LinearRegressor", 1, coefficients=W[:4], post_transform="PROBIT"),
        "LinearRegressor .post_transform PROBIT",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    make, text = REFUSED[name]
    with pytest.raises(UnsupportedOpsError, match=text):
        load(make())


def test_maps_are_their_columns() -> None:
    """Columns in the order of the labels."""
    proto = model("ZipMap", 1, classlabels_strings=["a", "b", "c", "d"])
    np.testing.assert_array_equal(load(proto).run({"x": X})["y"], X)
    session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    maps = session.run(None, {"x": X})[0]
    np.testing.assert_array_equal([[each[name] for name in "abcd"] for each in maps], X)
