"""Linear models, trees and scalers of ``ai.onnx.ml`` give onnxruntime's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from popsr.errors import UnsupportedOpsError

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from onnx import helper  # noqa: E402

from popsr.bridge.onnx import load  # noqa: E402

DOMAIN = "ai.onnx.ml"
RNG = np.random.default_rng(2)
X = RNG.normal(size=(7, 4)).astype(np.float32)
X[3] = 0


def model(op_type: str, results: int, **attributes: Any) -> Any:
    node = helper.make_node(op_type, ["x"], ["y", "z"][:results], "here", domain=DOMAIN, **attributes)
    graph = helper.make_graph(
        [node],
        "classic",
        [helper.make_tensor_value_info("x", 1, X.shape)],
        [helper.make_empty_tensor_value_info(name) for name in ("y", "z")[:results]],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 3)], ir_version=8
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


W = [float(each) for each in RNG.normal(size=12)]
CASES: dict[str, Callable[[], Any]] = {
    "scaler": lambda: model("Scaler", 1, offset=[0.5, 1.0, -1.0, 0.0], scale=[2.0, 0.5, 1.0, 3.0]),
    "scaler of one number": lambda: model("Scaler", 1, offset=[0.5], scale=[2.0]),
    "normalizer L1": lambda: model("Normalizer", 1, norm="L1"),
    "normalizer L2": lambda: model("Normalizer", 1, norm="L2"),
    "binarizer": lambda: model("Binarizer", 1, threshold=0.25),
    "linear regressor": lambda: model(
        "LinearRegressor", 1, coefficients=W, intercepts=[0.1, 0.2, 0.3], targets=3
    ),
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
    "softmax of classes": lambda: model(
        "TreeEnsembleClassifier",
        2,
        **trees("class", [0, 1, 2], classlabels_int64s=[4, 5, 6], post_transform="SOFTMAX"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("missing", [False, True])
def test_values(name: str, missing: bool) -> None:
    proto, x = CASES[name](), X.copy()
    if missing and name.startswith(("trees", "classes")):
        x[::2, 1] = np.nan
    session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    truths = session.run(None, {"x": x})
    found = list(load(proto).run({"x": x}).values())
    assert [each.dtype for each in found] == [each.dtype for each in truths]
    for value, truth in zip(found, truths, strict=True):
        np.testing.assert_allclose(value, truth, rtol=1e-5, atol=1e-6)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "maps": (lambda: model("ZipMap", 1, classlabels_int64s=[0, 1, 2, 3]), "ZipMap .a list of maps: make its"),
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
