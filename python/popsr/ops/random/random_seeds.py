"""Seeds made of seeds, inside the program. Stochastic rounding has seeds of its own: ``popsr.transforms``."""

from __future__ import annotations

from popsr import dtypes
from popsr._program.building.emit import emit, emit_op
from popsr._program.building.transaction import transactional
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import integer_of, is_a
from popsr.errors import DTypeError
from popsr.ops._facts import public_op

__all__ = ["create_random_seed", "split_random_seed"]

_MAX_SEEDS = 2**16


class _SeedDTypeError(DTypeError, ValueError):
    """A seed of another dtype: a ValueError too, as PopXL's."""


def _check_seed(op: str, seed: Tensor) -> None:
    if is_a(seed, Tensor) and seed.dtype != dtypes.uint32:
        raise _SeedDTypeError(
            f"{op}: input seed has the wrong dtype, got {seed.dtype.name}{list(seed.shape)}, expected one of uint32"
        )


@public_op
def create_random_seed(seed: Tensor, modifier: Tensor) -> Tensor:
    """Another seed: the first word stays, the second is drawn with the modifier added to it.

    Args:
        seed: uint32 ``[2]``, words ``(a, b)``.
        modifier: an integer of one element, m; the sum wraps.
    Returns:
        Seed ``(a, h)``, where h is what seed ``(a, b + m)`` draws.
    Raises:
        ShapeError: the seed is not ``[2]`` or the modifier has not one element.
        DTypeError: the seed is not uint32 (a ValueError too) or the modifier no integer.
    Source:
        Random words: ARS-7 of Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011.
    Example:
        >>> evaluate(ops.create_random_seed, np.array([1, 2], np.uint32), np.uint32(7))
        array([        1, 199304438], dtype=uint32)
    """
    _check_seed("create_random_seed", seed)
    return emit("create_random_seed", {"seed": seed, "modifier": modifier})


@public_op
@transactional
def split_random_seed(seed: Tensor, n: int = 2) -> tuple[Tensor, ...]:
    """Several seeds made of one: number i is ``create_random_seed(seed, i)``.

    The first word stays, so seeds of different first words never meet. Seeds ``(a, b)`` and ``(a, b + 1)`` have
    children in common.

    Args:
        seed: uint32 ``[2]``.
        n: how many, 1 or more.
    Returns:
        The n seeds.
    Raises:
        ShapeError: the seed is not ``[2]``.
        DTypeError: the seed is not uint32 (a ValueError too).
        AttributeValueError: ``n`` is not positive.
    Source:
        Random words: ARS-7 of Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011.
    Example:
        >>> evaluate(ops.split_random_seed, np.array([1, 2], np.uint32), 2)
        [array([         1, 3420063458], dtype=uint32), array([        1, 606352143], dtype=uint32)]
    """
    _check_seed("split_random_seed", seed)
    number = integer_of(n) or 0
    count = number if 0 < number <= _MAX_SEEDS else 1  # the core checks it
    return tuple(emit_op("split_random_seed", {"seed": seed}, {"n": n}, outputs=count)[1])
