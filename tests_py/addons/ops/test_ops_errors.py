"""Refused arguments of the ops of ``popsr.addons`` that stay on a replica: nothing is added."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors
from popsr.addons.ops import (
    dense_const_sparse_matmul,
    fp8_amax_scale,
    fp8_mse_scale,
    grad_reduce_square_add,
    group_quantize_compress_numpy,
    group_quantize_decompress,
    group_quantize_decompress_numpy,
    linear_layout,
    random_sparse,
    rotary_pos_embed,
    trig_table_constants,
    trig_tables,
)
from tests_py.support.helpers import assert_refused


def of(*shape: int, dtype: Any = popsr.float32) -> popsr.Tensor:
    """An input of the current graph."""
    return popsr.graph_input(shape, dtype)


def ints(*shape: int) -> popsr.Tensor:
    return of(*shape, dtype=popsr.int32)


def half(*shape: int) -> popsr.Tensor:
    return of(*shape, dtype=popsr.float16)


def words(*shape: int) -> popsr.Tensor:
    return of(*shape, dtype=popsr.uint16)


def elsewhere(*shape: int) -> popsr.Tensor:
    """A tensor of another graph of the current program."""
    with popsr.gir().create_empty_graph():
        return of(*shape)


class Sparse:
    """Quacks like a csr_matrix."""

    shape = (3, 2)

    def toarray(self) -> Any:
        return np.ones(self.shape)


U16 = np.zeros((2, 2), np.uint16)
SCALE = np.ones((2, 2), np.float32)
ANY: Any = None

Row = tuple[type[Exception], str, Callable[[], Any]]

REFUSED: dict[str, Row] = {
    "square, integers": (
        errors.DTypeError,
        "grad_reduce_square_add: t is not of floats, got int32",
        lambda: grad_reduce_square_add(ints(3), 1),
    ),
    "square, an array": (
        errors.ArgumentTypeError,
        r"grad_reduce_square_add: t is not a Tensor, got ndarray uint16\[2, 2\] array",
        lambda: grad_reduce_square_add(U16, 1),  # type: ignore[arg-type]
    ),
    "square, scale in words": (
        errors.ArgumentTypeError,
        "grad_reduce_square_add: loss_scaling is not a number, got str '2'",
        lambda: grad_reduce_square_add(of(3), "2"),  # type: ignore[arg-type]
    ),
    "square, scale": (
        errors.ArgumentTypeError,
        "grad_reduce_square_add: loss_scaling is not a number, got str 'x'",
        lambda: grad_reduce_square_add(of(3), "x"),  # type: ignore[arg-type]
    ),
    "square, scale of several": (
        errors.ShapeError,
        r"loss_scaling is not a scalar, got shape \(2,\)",
        lambda: grad_reduce_square_add(of(3), of(2)),
    ),
    "square, another graph": (
        errors.GraphError,
        "grad_reduce_square_add: t is of another graph",
        lambda: grad_reduce_square_add(elsewhere(3), 1),
    ),
    "layout": (
        errors.AttributeValueError,
        "linear_layout: bs: got 0, expected an int from 1",
        lambda: linear_layout(of(3), 0),
    ),
    "layout, no tensor": (
        errors.ArgumentTypeError,
        "linear_layout: t is not a Tensor, got int 3",
        lambda: linear_layout(3),  # type: ignore[arg-type]
    ),
    "rotary, odd": (
        errors.AttributeValueError,
        "rotary_pos_embed: rotary_dim is odd, got 3",
        lambda: rotary_pos_embed(of(2, 4), of(2, 1), of(2, 1), 3),
    ),
    "rotary, too many": (
        errors.AttributeValueError,
        "rotary_pos_embed: rotary_dim: got 6, expected an int from 0 to 4",
        lambda: rotary_pos_embed(of(2, 4), of(2, 3), of(2, 3), 6),
    ),
    "rotary, rank": (
        errors.ShapeError,
        r"t has too few axes, got shape \(4,\)",
        lambda: rotary_pos_embed(of(4), of(2, 2), of(2, 2)),
    ),
    "rotary, table": (
        errors.ShapeError,
        r"cos has another shape, got \(3, 2\), expected \(2, 2\)",
        lambda: rotary_pos_embed(of(2, 4), of(2, 2), of(3, 2)),
    ),
    "rotary, table of the heads": (
        errors.ShapeError,
        r"sin has another shape, got \(7, 2\), expected \(3, 2\), or \(1, \.\.\.\) or \(2, \.\.\.\) of it",
        lambda: rotary_pos_embed(of(2, 3, 7, 4), of(7, 2), of(7, 2)),
    ),
    "rotary, table of another batch": (
        errors.ShapeError,
        r"cos has another shape, got \(3, 5, 2\), expected \(5, 2\)",
        lambda: rotary_pos_embed(of(2, 5, 4), of(2, 5, 2), of(3, 5, 2)),
    ),
    "rotary, dtype": (
        errors.DTypeError,
        "sin is of another dtype, got float16, expected float32",
        lambda: rotary_pos_embed(of(2, 4), half(2, 2), of(2, 2)),
    ),
    "tables, odd": (
        errors.AttributeValueError,
        "trig_tables: rotary_dim is odd, got 5",
        lambda: trig_tables(3, 5),
    ),
    "tables, positions": (
        errors.AttributeValueError,
        "trig_tables: seq_len: got -1, expected an int from 0",
        lambda: trig_tables(-1, 4),
    ),
    "tables, base": (
        errors.AttributeValueError,
        "trig_tables: base is not positive, got 0",
        lambda: trig_tables(3, 4, 0),
    ),
    "tables, dtype": (
        errors.DTypeError,
        "trig_table_constants: dtype is none of floats, got int32",
        lambda: trig_table_constants(3, 4, dtype=popsr.int32),
    ),
    "four bits, words": (
        errors.DTypeError,
        "group_quantize_decompress: t is of another dtype, got int32, expected uint16",
        lambda: group_quantize_decompress(ints(2, 2), of(2, 2), of(2, 2)),
    ),
    "four bits, offsets": (
        errors.ShapeError,
        r"group_bias has another shape, got \(2, 1\), expected \(2, 2\)",
        lambda: group_quantize_decompress(words(2, 2), of(2, 2), of(2, 1)),
    ),
    "four bits, dtypes": (
        errors.DTypeError,
        "group_bias is of another dtype, got float16, expected float32",
        lambda: group_quantize_decompress(words(2, 2), of(2, 2), half(2, 2)),
    ),
    "four bits, groups": (
        errors.ShapeError,
        r"group_scale has another shape, got \(2, 3\), expected \(2, 2\) with .* divides 8 at axis 1",
        lambda: group_quantize_decompress(words(2, 2), of(2, 3), of(2, 3)),
    ),
    "four bits, rank": (
        errors.ShapeError,
        r"group_scale has another shape, got \(2,\)",
        lambda: group_quantize_decompress(words(2, 2), of(2), of(2)),
    ),
    "four bits, axis": (
        errors.AttributeValueError,
        "group_quantize_decompress: axis is out of range, got 2",
        lambda: group_quantize_decompress(words(2, 2), of(2, 2), of(2, 2), 2),
    ),
    "four bits, no axis": (
        errors.ArgumentTypeError,
        "group_quantize_decompress: axis is not an int, got None",
        lambda: group_quantize_decompress(words(2, 2), of(2, 2), of(2, 2), ANY),
    ),
    "four bits, host words": (
        errors.DTypeError,
        "group_quantize_decompress_numpy: t is of another dtype, got float32",
        lambda: group_quantize_decompress_numpy(SCALE, SCALE, SCALE, 0),
    ),
    "four bits, host groups": (
        errors.ShapeError,
        "group_quantize_decompress_numpy: group_scale has another shape",
        lambda: group_quantize_decompress_numpy(U16, SCALE[:1], SCALE[:1], 1),
    ),
    "compression, size": (
        errors.ShapeError,
        "group_quantize_compress_numpy: the axis does not divide, got 8 elements, expected .* group_size 3",
        lambda: group_quantize_compress_numpy(np.ones(8), 3, 0),
    ),
    "compression, words": (
        errors.ShapeError,
        "the axis does not divide, got 6 elements",
        lambda: group_quantize_compress_numpy(np.ones(6), 3, 0),
    ),
    "compression, integers": (
        errors.DTypeError,
        "t is not of floats, got int64",
        lambda: group_quantize_compress_numpy(np.ones(8, np.int64), 4, 0),
    ),
    "compression, infinity": (
        errors.AttributeValueError,
        "t has infinities or NaN, expected finite numbers",
        lambda: group_quantize_compress_numpy(np.full(8, np.inf), 4, 0),
    ),
    "sparse, product": (
        errors.ArgumentTypeError,
        "dense_const_sparse_matmul: rhs is not a sparse matrix, got ndarray",
        lambda: dense_const_sparse_matmul(of(2, 3), np.ones((3, 2)), 2),  # type: ignore[arg-type]
    ),
    "sparse, columns": (
        errors.ShapeError,
        r"dense_const_sparse_matmul: rhs has another shape, got \(3, 2\), expected \(3, 4\)",
        lambda: dense_const_sparse_matmul(of(2, 3), Sparse(), 4),  # type: ignore[arg-type]
    ),
    "sparse, rank": (
        errors.ShapeError,
        r"lhs has too few axes, got shape \(3,\)",
        lambda: dense_const_sparse_matmul(of(3), Sparse(), 2),  # type: ignore[arg-type]
    ),
    "sparse, density": (
        errors.AttributeValueError,
        "random_sparse: density is out of range, got 1.5",
        lambda: random_sparse(np.ones((2, 2)), 1.5),
    ),
    "sparse, no matrix": (
        errors.ShapeError,
        r"random_sparse: dense is not a matrix, got shape \(4,\)",
        lambda: random_sparse(np.ones(4)),
    ),
}

SCALES: dict[str, Callable[..., Any]] = {"fp8_amax_scale": fp8_amax_scale, "fp8_mse_scale": fp8_mse_scale}


@pytest.mark.parametrize("row", REFUSED)
def test_refused(row: str) -> None:
    error, match, build = REFUSED[row]
    assert_refused(build, error, match)


@pytest.mark.parametrize("name", SCALES)
def test_refused_by_scales(name: str) -> None:
    scale = SCALES[name]
    assert_refused(
        lambda: scale(of(3), popsr.float16), errors.DTypeError, f"{name}: wrong dtype, got .*float16"
    )
    assert_refused(lambda: scale(ints(3)), errors.DTypeError, f"{name}: src is not of floats, got int32")
    assert_refused(lambda: scale(of(0, 3)), errors.ShapeError, f"{name}: src has no elements")


def test_sparse_matrices_without_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random ones need it; products take whatever has ``toarray``."""
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("scipy"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr("importlib.import_module", without)
    with pytest.raises(errors.MissingPackageError, match="random_sparse: scipy is not installed"):
        random_sparse(np.ones((2, 2)))
    ir = popsr.Ir()
    with ir.main_graph:
        y = dense_const_sparse_matmul(popsr.constant(np.ones((4, 3), np.float32)), Sparse(), 2)  # type: ignore[arg-type]
    assert y.shape == (4, 2)
