"""Steps that cannot be read: one line that names what was got and what is expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
from jax.sharding import PartitionSpec as P

from popsr.bridge.jax import from_jax
from popsr.errors import (
    ArgumentTypeError,
    AttributeValueError,
    Error,
    ReplicaError,
    ShapeError,
)

W, X = np.ones(4, np.float32), np.ones((8, 4), np.float32)
MESH: dict[str, Any] = {"mesh": {"data": 4}, "in_specs": (P(), P("data")), "out_specs": (P(), P())}


def step(w: Any, x: Any) -> Any:
    return w - jax.lax.pmean(x.sum(0), "data"), jax.lax.pmean(x.sum(), "data")


def two_meshes(w: Any, x: Any) -> Any:
    for size in (4, 2):
        mesh = jax.sharding.AbstractMesh((size,), ("data",))
        w = jax.shard_map(lambda v: v * 2, mesh=mesh, in_specs=P("data"), out_specs=P("data"))(w)
    return w


def exported() -> Any:
    from jax import export

    (size,) = export.symbolic_shape("n")
    return jax.ShapeDtypeStruct((size,), np.float32)


REFUSED: dict[str, tuple[Callable[[], Any], type[Error], str]] = {
    "not a function": (lambda: from_jax(3), ArgumentTypeError, "f is not a function, got 3"),
    "replicas beside a mesh": (
        lambda: from_jax(step, W, X, replicas=8, **MESH),
        ReplicaError,
        "replicas are not the mesh's, got 8, expected 4",
    ),
    "two meshes": (
        lambda: from_jax(two_meshes, W, X),
        ReplicaError,
        "got axis 'data' of 2, expected 'data' of 4",
    ),
    "rows beside replicas": (
        lambda: from_jax(step, W, X, replicas=4, axis_name="data", in_axes=(None, 0)),
        ReplicaError,
        r"not a row for each replica, got shape \[8, 4\], expected 4 rows",
    ),
    "an axis without replicas": (
        lambda: from_jax(step, W, X, axis_name="data"),
        AttributeValueError,
        "axis_name without replicas, got 'data'",
    ),
    "no replicas": (
        lambda: from_jax(step, W, X, replicas=0, axis_name="data"),
        Error,
        "replicas",
    ),
    "in_axes that do not fit": (
        lambda: from_jax(step, W, X, replicas=4, axis_name="data", in_axes=(None, 0, 0)),
        AttributeValueError,
        "not one of in_axes for each argument, got 3, expected 2",
    ),
    "in_axes of another axis": (
        lambda: from_jax(step, W, X, replicas=4, axis_name="data", in_axes=(None, 1)),
        AttributeValueError,
        "in_axes of argument 1, got 1, expected 0 or None",
    ),
    "one of two specs": (
        lambda: from_jax(step, W, X, mesh={"data": 4}, in_specs=(P(), P("data"))),
        AttributeValueError,
        "one of in_specs and out_specs",
    ),
    "specs without a mesh": (
        lambda: from_jax(step, W, X, in_specs=(P(), P("data")), out_specs=(P(), P())),
        ArgumentTypeError,
        "mesh is not a mesh, got None",
    ),
    "a mesh of other things": (
        lambda: from_jax(step, W, X, mesh=4, in_specs=(P(), P("data")), out_specs=(P(), P())),
        ArgumentTypeError,
        "mesh is not a mesh, got 4",
    ),
    "a spec that is a string": (
        lambda: from_jax(step, W, X, mesh={"data": 4}, in_specs=(P(), "data"), out_specs=(P(), P())),
        ArgumentTypeError,
        "in_specs is not a tree of specs, got 'data', expected PartitionSpec",
    ),
    "a spec that cannot be hashed": (
        lambda: from_jax(
            step, W, X, mesh={"data": 4}, in_specs=(P(), P("data")), out_specs=(P(), {"a": [{}, {3}]})
        ),
        ArgumentTypeError,
        r"out_specs is not a tree of specs, got \{3\}, expected PartitionSpec",
    ),
    "a spec of another axis": (
        lambda: from_jax(step, W, X, mesh={"data": 4}, in_specs=(P(), P("model")), out_specs=(P(), P())),
        AttributeValueError,
        r"in_specs of an axis that the mesh lacks, got 'model', expected one of \['data'\]",
    ),
    "a mesh without axes": (
        lambda: from_jax(step, W, X, mesh={}, in_specs=(P(), P()), out_specs=(P(), P())),
        AttributeValueError,
        "a mesh without axes, got {}",
    ),
    "replicated data": (
        lambda: from_jax(step, W, X, replicated=["x"], **MESH),
        AttributeValueError,
        r"replicated has no such state, got 'x', expected one of \['w'\]",
    ),
    "replicated by a string": (
        lambda: from_jax(step, W, X, replicated="w", **MESH),
        ArgumentTypeError,
        "replicated is not names, got 'w', expected a list of str",
    ),
    "replicated rows that differ": (
        lambda: from_jax(
            step,
            np.arange(16, dtype=np.float32).reshape(4, 4),
            np.ones((4, 8, 4), np.float32),
            replicas=4,
            axis_name="data",
            replicated=["w"],
        ),
        ReplicaError,
        "rows of replicated 'w' differ, got 4 different ones, expected equal rows",
    ),
    "dynamic shapes": (
        lambda: from_jax(lambda x: x * 2, exported()),
        ShapeError,
        "dynamic shape, got",
    ),
    "names that are not enough": (
        lambda: from_jax(step, W, X, names=["w"], **MESH),
        AttributeValueError,
        "not one name for each argument",
    ),
    "names that are not strings": (
        lambda: from_jax(step, W, X, names=[1, 2], **MESH),  # type: ignore[list-item]
        ArgumentTypeError,
        "names are not strings",
    ),
    "a role of nothing": (
        lambda: from_jax(step, W, X, roles={"v": "state"}, **MESH),
        AttributeValueError,
        "role of no argument, got 'v'",
    ),
    "an unknown role": (
        lambda: from_jax(step, W, X, roles={"w": "weight"}, **MESH),
        AttributeValueError,
        "no such role, got 'weight'",
    ),
    "updates of nothing": (
        lambda: from_jax(step, W, X, updates={5: 0}, **MESH),
        AttributeValueError,
        "updates of an argument or result that is not there",
    ),
    "updates of another tree": (
        lambda: from_jax(lambda w, x: ([w, w], x), W, X, updates={0: 0}),
        AttributeValueError,
        "updates argument 0 by a result of another tree",
    ),
    "updates of another shape": (
        lambda: from_jax(lambda w, x: (x, w), W, X, updates={0: 0}),
        ShapeError,
        "new value of state 'w' does not fit",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    call, kind, text = REFUSED[case]
    with pytest.raises(kind, match=text) as error:
        call()
    assert "\n" not in str(error.value)
