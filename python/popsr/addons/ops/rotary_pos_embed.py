"""Rotary position embedding: pairs of features are turned by angles that grow with the position."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from popsr import dtypes, ops
from popsr._program.building.operands import read_floats
from popsr._program.building.transaction import transactional
from popsr._program.tensor import Constant, Tensor, constant
from popsr._support.host.arguments import read_choice, read_dtype, read_int, read_number, require_memory
from popsr._support.host.float_environment import in_default_environment
from popsr._support.text.entry_points import public
from popsr.errors import AttributeValueError, DTypeError, ShapeError

__all__ = ["rotary_pos_embed", "trig_table_constants", "trig_tables"]

Array = np.ndarray[Any, Any]
Pairs = Literal["neighbours", "halves"]


@public
@in_default_environment
def trig_tables(
    seq_len: int, rotary_dim: int, base: int = 10000, np_dtype: Any = "float32"
) -> tuple[Array, Array]:
    """Sines and cosines of the angles ``position * base**(-2 * i / rotary_dim)`` of pair i.

    Angles are computed in float64, the tables rounded once.

    Args:
        seq_len: number of positions.
        rotary_dim: number of features that are turned, even.
        base: of the angles, positive.
        np_dtype: dtype of the tables.
    Returns:
        Sines and cosines, ``[seq_len, rotary_dim / 2]`` each.
    Raises:
        ValueError: a number out of range, or ``rotary_dim`` is odd.
    """
    where = "trig_tables"
    seq_len = read_int(f"{where}: seq_len", seq_len, 0)
    rotary_dim = _read_even(where, rotary_dim)
    number = read_number(f"{where}: base", base)
    if not number > 0:
        raise AttributeValueError(f"{where}: base is not positive, got {number}, expected a number above 0")
    target = read_dtype(f"{where}: np_dtype", np_dtype).as_ml_dtypes()
    require_memory(where, 8 * seq_len * (rotary_dim + 1))
    positions = np.arange(seq_len, dtype=np.float64)
    frequencies = np.power(number, -np.arange(0, rotary_dim, 2) / rotary_dim)
    angles = np.outer(positions, frequencies)
    return np.sin(angles).astype(target), np.cos(angles).astype(target)


@public
@transactional
def trig_table_constants(
    seq_len: int, rotary_dim: int, base: int = 10000, dtype: dtypes.dtype = dtypes.float32
) -> tuple[Constant, Constant]:
    """``trig_tables`` as constants of the current graph.

    Args:
        seq_len: number of positions.
        rotary_dim: number of features that are turned, even.
        base: of the angles, positive.
        dtype: float16, bfloat16, float32 or float64.
    Returns:
        Sines and cosines, ``[seq_len, rotary_dim / 2]`` each.
    Raises:
        TypeError: ``dtype`` is none of floats.
        ValueError: a number out of range, or ``rotary_dim`` is odd.
    """
    kind = read_dtype("trig_table_constants", dtype)
    if kind not in (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64):
        raise DTypeError(
            f"trig_table_constants: dtype is none of floats, got {kind.name}, expected float16, bfloat16, float32 or "
            f"float64"
        )
    sin, cos = trig_tables(seq_len, rotary_dim, base, np.float64)
    return constant(sin, kind, "rotary_sin"), constant(cos, kind, "rotary_cos")


@public
@transactional
def rotary_pos_embed(
    t: Tensor, sin: Tensor, cos: Tensor, rotary_dim: int | None = None, *, pairs: Pairs = "neighbours"
) -> Tensor:
    """Turn each pair of features by the angle of its position.

    Args:
        t: floats ``[batch, sequence, heads, features]``; without heads ``[batch, sequence, features]``, without batch
            ``[sequence, features]``.
        sin: sines of the angles, of the dtype of ``t``: ``[sequence, rotary_dim / 2]``, ``[1, sequence,
            rotary_dim / 2]`` or ``[batch, sequence, rotary_dim / 2]``.
        cos: cosines of the angles, likewise.
        rotary_dim: how many features are turned, from the first on; the others stay as they are. Default: all.
        pairs: "neighbours": features ``2 * i`` and ``2 * i + 1``, as in GPT-J. "halves": features ``i`` and
            ``i + rotary_dim / 2``, as in GPT-NeoX and LLaMA of Hugging Face. Weights are made for one of them.
    Returns:
        Tensor of the shape and dtype of ``t``. Differentiable.
    Raises:
        TypeError: an operand is not a tensor of floats, or their dtypes differ.
        ValueError: shapes do not fit, a tensor is of another graph, ``rotary_dim`` is odd or too large, or ``pairs`` is
            another word.
    """
    where = "rotary_pos_embed"
    if read_floats(where, "t", t).rank < 2:
        raise ShapeError(
            f"{where}: t has too few axes, got shape {t.shape}, expected [batch, sequence, heads, features]"
        )
    features = t.shape[-1]
    turned = _read_even(where, features if rotary_dim is None else rotary_dim, features)
    for name, each in (("sin", sin), ("cos", cos)):
        _check_table(name, each, t, turned)
    sin, cos = (_beside(each, t) for each in (sin, cos))
    lead = t.shape[:-1]
    kept = [] if turned == features else [ops.slice(t, turned, features, 1, -1)]
    head = ops.slice(t, 0, turned, 1, -1) if kept else t
    half = turned // 2
    if read_choice(where, "pairs", pairs, ("neighbours", "halves")) == "halves":
        axis, grid, single = -2, (2, half), (1, half)
    else:
        axis, grid, single = -1, (half, 2), (half, 1)
    split = ops.split(ops.reshape(head, (*lead, *grid)), 2, axis)
    x, y = (ops.reshape(each, (*lead, half)) for each in split)
    both = [x * cos - y * sin, y * cos + x * sin]
    stacked = ops.concat([ops.reshape(each, (*lead, *single)) for each in both], axis)
    return ops.concat([ops.reshape(stacked, (*lead, turned)), *kept], -1)


def _check_table(name: str, table: Tensor, t: Tensor, turned: int) -> None:
    """A table has a row for each position, and may have one for each sample."""
    where = "rotary_pos_embed"
    batch, sequence = (1, t.shape[0]) if t.rank == 2 else t.shape[:2]
    rows = (sequence, turned // 2)
    shape = read_floats(where, name, table).shape
    if shape not in (rows, (1, *rows), (batch, *rows)):
        raise ShapeError(
            f"{where}: {name} has another shape, got {shape}, expected {rows}, or (1, ...) or ({batch}, ...) of it, "
            f"for t of shape {t.shape}"
        )
    if table.dtype != t.dtype:
        raise DTypeError(
            f"{where}: {name} is of another dtype, got {table.dtype.name}, expected {t.dtype.name}"
        )


def _beside(table: Tensor, t: Tensor) -> Tensor:
    """The table with as many axes as ``t``, so that both broadcast."""
    *batch, sequence, half = table.shape
    if t.rank == 2:
        return ops.reshape(table, (sequence, half)) if batch else table
    if t.rank == 3:
        return table
    return ops.reshape(table, (*(batch or [1]), sequence, *[1] * (t.rank - 3), half))


def _read_even(where: str, rotary_dim: int, most: int = 2**31) -> int:
    number = read_int(f"{where}: rotary_dim", rotary_dim, 0, most)
    if number % 2:
        raise AttributeValueError(f"{where}: rotary_dim is odd, got {number}, expected an even number")
    return number
