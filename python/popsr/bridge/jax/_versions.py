"""Names and forms that differ between versions of JAX, found by what the installed one has."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from popsr.bridge.jax._framework import the_jax

__all__ = ["abstract_mesh", "shard_map", "specs_of"]


def shard_map(f: Any, *, mesh: Any, in_specs: Any, out_specs: Any, check_vma: bool) -> Any:
    """``jax.shard_map``, also where it is experimental."""
    jax = the_jax()
    where = {"mesh": mesh, "in_specs": in_specs, "out_specs": out_specs}
    if hasattr(jax, "shard_map"):
        return jax.shard_map(f, **where, check_vma=check_vma)
    return importlib.import_module("jax.experimental.shard_map").shard_map(f, **where, check_rep=check_vma)


def abstract_mesh(sizes: Mapping[str, int]) -> Any:
    """A mesh without devices."""
    kind = the_jax().sharding.AbstractMesh
    if "axis_sizes" in inspect.signature(kind).parameters:
        return kind(tuple(sizes.values()), tuple(sizes))
    return kind(tuple(sizes.items()))


def specs_of(params: Mapping[str, Any], which: str) -> Sequence[Any]:
    """The specs of a ``shard_map``: which is "in" or "out"; older ones are axes by dimension."""
    if f"{which}_specs" in params:
        found: Sequence[Any] = params[f"{which}_specs"]
        return found
    return [
        tuple(names.get(dimension) for dimension in range(max(names, default=-1) + 1))
        for names in params[f"{which}_names"]
    ]
