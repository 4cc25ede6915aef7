"""Numbers of the elements of an array's shards, inside ``jax.shard_map``."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import UnsupportedError

__all__ = ["shard_offset"]


@public
def shard_offset(x: Any, axis_name: Any, axis: int = 0) -> jax.Array:
    """The number of a shard's first element in the whole array, for ``offset`` inside ``jax.shard_map``.

    ``add(w, u, key=key, offset=shard_offset(w, "data"), portable=True)`` has the bits that the sum of the whole arrays
    has, without the other shards.

    Args:
        x: the shard, of equal shards along axis 0.
        axis_name: axis of the mesh along which the array is cut, or a tuple of several, as in its ``PartitionSpec``.
        axis: of the array that is cut; only elements of shards along axis 0 have numbers that follow each other.
    Returns:
        uint32 ``[2]``: the words of a number below 2**64, the lower one first.
    Raises:
        ValueError: the array is cut along another axis.
    Example:
        >>> import jax, jax.numpy as jnp
        >>> mesh = jax.make_mesh((1,), ("data",))
        >>> spec = jax.sharding.PartitionSpec("data")
        >>> offset = lambda x: popsr.sr.jax.shard_offset(x, "data")
        >>> jax.shard_map(offset, mesh=mesh, in_specs=spec, out_specs=spec)(jnp.ones(8))
        Array([0, 0], dtype=uint32)
    """
    if axis != 0:
        raise UnsupportedError(
            f"shard_offset: shards along another axis have no numbers in a row, got axis {shown(axis)}, expected 0"
        )
    position, size = lax.axis_index(axis_name).astype(jnp.uint32), jnp.uint32(x.size)
    # A product of 64 bits, by halves of 16.
    low, high = position & 0xFFFF, position >> 16
    a, b = size & 0xFFFF, size >> 16
    first, second, third = low * a, low * b, high * a
    middle = (first >> 16) + (second & 0xFFFF) + (third & 0xFFFF)
    upper = high * b + (second >> 16) + (third >> 16) + (middle >> 16)
    return jnp.stack([(first & 0xFFFF) | (middle << 16), upper])
