"""Rows of the table of ops for concat, detach and the ops that make views: with the values of the ops that copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import popsr
from tests_py.ops.rows.inputs import Case, Row, normal
from tests_py.support.helpers import ALL_DTYPES, Array


def _same(t: Array) -> Array:
    return t


def _joined(*ts: Array, axis: int = 0) -> Array:
    return np.concatenate(ts, axis)


def _listed(fn: Any, *ts: popsr.Tensor, **attrs: Any) -> Any:
    return fn(list(ts), **attrs)


def _iterated(fn: Any, *ts: popsr.Tensor, **attrs: Any) -> Any:
    return fn(iter(ts), **attrs)


def _concat() -> Row:
    def case(*shapes: tuple[int, ...], label: str, call: Callable[..., Any] = _listed, **attrs: Any) -> Case:
        empty = any(0 in shape for shape in shapes)
        return Case(normal(*shapes), _joined, attrs, label, ALL_DTYPES, call=call, smooth=not empty)

    return Row(
        (
            case((2, 3), (4, 3), label="rows"),
            case((2, 3), (2, 1), (2, 40), label="columns", axis=1),
            case((2, 3, 2), (2, 1, 2), label="middle", axis=-2),
            case((5,), label="one", call=_iterated),
            case((0, 3), (2, 3), label="with-empty"),
            case((2, 0), (1, 0), label="empty"),
        ),
        "finite",
        listed=True,
    )


def _detach(grad: Any) -> Row:
    cases = [
        Case(normal(shape), _same, {}, label, ALL_DTYPES)
        for shape, label in (((3, 4), ""), ((), "scalar"), ((2, 0), "empty"))
    ]
    return Row(tuple(cases), grad)


def _view_of(row: Row, grad: Any) -> Row:
    """The same values, but another gradient."""
    return Row(tuple(replace(case, smooth=False) for case in row.cases), grad)


def view_rows(copies: dict[str, Row]) -> dict[str, Row]:
    """Rows by op; ``copies``: rows of slice, reshape, flatten and transpose."""
    return {
        "concat": _concat(),
        "concat_": _concat(),
        "detach": _detach("stops"),
        "detach_": _detach("stops"),
        "slice_": _view_of(copies["slice"], "throws"),
        **{f"{name}_": _view_of(copies[name], "stops") for name in ("reshape", "flatten", "transpose")},
    }
