"""Names of newer versions of JAX for tests that an older one runs: each is the older one's function of another name."""

from __future__ import annotations

import functools
import importlib
import inspect
from typing import Any

__all__ = ["add_newer_names"]


def add_newer_names(jax: Any) -> None:
    """Give an older JAX the names that these tests use; the newest is left as it is."""
    if not hasattr(jax, "shard_map"):
        jax.shard_map = _shard_map
    if not hasattr(jax, "enable_x64"):
        jax.enable_x64 = importlib.import_module("jax.experimental").enable_x64
    mesh = jax.sharding.AbstractMesh
    if "axis_sizes" not in inspect.signature(mesh).parameters:
        plain = mesh.__init__

        def init(self: Any, sizes: Any, names: Any = None, **options: Any) -> None:
            plain(self, sizes if names is None else tuple(zip(names, sizes, strict=True)), **options)

        mesh.__init__ = init


def _shard_map(f: Any, *, check_vma: bool = True, axis_names: Any = None, **where: Any) -> Any:
    shard_map = importlib.import_module("jax.experimental.shard_map").shard_map
    auto = frozenset() if axis_names is None else frozenset(where["mesh"].axis_names) - frozenset(axis_names)
    return functools.partial(shard_map, check_rep=check_vma, auto=auto)(f, **where)
