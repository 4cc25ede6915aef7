"""Stand-ins for ops that popsr lacks: results that differ wherever operands do, for the analysis alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from popsr import dtypes, ops
from popsr._program.building.transaction import transactional
from popsr._program.tensor import Tensor, constant

__all__ = ["opaque"]


@transactional
def opaque(
    inputs: Iterable[Tensor], outputs: Sequence[tuple[tuple[int, ...], dtypes.dtype]], everywhere: bool
) -> tuple[Tensor, ...]:
    """Tensors of the current graph that replicas agree on where they agree on all inputs.

    A session of a program that has some is refused as long as ``Ir._gaps`` names them.

    Args:
        inputs: what the op reads.
        outputs: shape and dtype of what it makes.
        everywhere: replicas agree on no output, whatever they agree on: the op exchanges values in a way that is not
            known, or makes them of the replica's own state.
    """
    marks = [_mark(t) for t in inputs if t.nelms]
    if everywhere:
        marks.append(ops.cast(ops.replica_index(), dtypes.float32))
    mark = marks[0] if marks else constant(0.0, dtypes.float32)
    for other in marks[1:]:
        mark = mark + other
    mark = ops.abs(mark)  # not linear: what comes out is not the gradient that went in
    return tuple(_spread(mark, shape, dtype) for shape, dtype in outputs)


def _mark(t: Tensor) -> Tensor:
    """A scalar that depends on every element."""
    return ops.sum(_cast(t, dtypes.float32))


def _spread(mark: Tensor, shape: tuple[int, ...], dtype: dtypes.dtype) -> Tensor:
    """The scalar in every element of a tensor."""
    return _cast(ops.expand(mark, shape), dtype)


_SCALED = frozenset([dtypes.float8_143, dtypes.float8_152, dtypes.float8_e4m3fn, dtypes.float8_e5m2])
"""Types that are cast with a scale."""


def _cast(t: Tensor, dtype: dtypes.dtype) -> Tensor:
    """A cast between any two types."""
    if t.dtype in _SCALED:
        t = ops.pow2scale_cast_from_fp8(t, constant(0, dtypes.int32), dtypes.float32)
    if dtype in _SCALED:
        return ops.pow2scale_cast_to_fp8(ops.cast(t, dtypes.float32), constant(0, dtypes.int32), dtype)
    return ops.cast(t, dtype)
