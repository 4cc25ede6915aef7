"""Optimisers of optax for weights in bfloat16 or float8: updates in fp32, and new weights rounded stochastically."""

from __future__ import annotations

from typing import Any, NamedTuple

try:
    import jax
    import jax.numpy as jnp
    import optax
except ImportError as error:
    from popsr._support.host.frameworks import not_installed

    raise not_installed("popsr.sr.optax", "optax") from error

from popsr._support.lazy import names_only
from popsr._support.text.entry_points import public
from popsr._support.text.shown import type_name
from popsr.errors import ArgumentTypeError
from popsr.sr._call import REQUIRED
from popsr.sr._types import Key as EagerKey
from popsr.sr.jax import Key, add

__all__ = ["RoundingState", "apply_updates", "stochastic_rounding"]


class RoundingState(NamedTuple):
    """State of :func:`stochastic_rounding`: the number of steps that were done, and the state of the optimiser."""

    count: Any
    inner: Any


@public
def apply_updates(
    params: Any, updates: Any, *, key: Any = REQUIRED, portable: bool = False, offset: Any = 0
) -> Any:
    """``optax.apply_updates``, whose sums are rounded once, stochastically, to the dtype of each parameter.

    Args:
        params: pytree of arrays.
        updates: pytree of the same structure, of any float dtypes; best float32.
        key: :class:`popsr.sr.jax.Key`, or ``popsr.sr.Key``, of the step: ``key.at(step)``. A parameter draws from
            ``key.fold_in(path)``, where the path is that of ``jax.tree_util.keystr``: ``"['layer1']['w']"``.
        portable: without callbacks, as in :func:`popsr.sr.jax.add`; always where JAX's default backend is not the CPU.
        offset: number of the first element of each parameter, or a function of a parameter that gives it: inside
            ``jax.shard_map``, where all are cut along axis 0, ``lambda p: popsr.sr.jax.shard_offset(p, "data")``.
    Returns:
        The new parameters; ``popsr.sr.add(parameter, update, key=...)`` has the same bits.
    Raises:
        TypeError: ``key`` is missing, or a parameter is not an array of floats.
    """
    root = _read_key("apply_updates", key)

    def one(path: Any, p: Any, u: Any) -> Any:
        if p is None:
            return None
        first = offset(p) if callable(offset) else offset
        return add(p, u, key=root.fold_in(jax.tree_util.keystr(path)), portable=portable, offset=first)

    return jax.tree_util.tree_map_with_path(one, params, updates, is_leaf=lambda x: x is None)


@public
def stochastic_rounding(inner: Any, *, key: Any = REQUIRED, portable: bool = False, offset: Any = 0) -> Any:
    """An optimiser of optax that sees gradients and parameters in fp32, and whose updates round stochastically.

    ``optax.apply_updates`` then gives each parameter that is narrower than 32 bits what
    ``apply_updates(params, inner_updates, key=key.at(step))`` of this module would give; steps count from 1. The
    updates are the differences of old and new weights, so nothing may come after it in a chain.

    Args:
        inner: ``optax.adamw(1e-3)``, or any other transformation; its state is in fp32.
        key: :class:`popsr.sr.jax.Key`, or ``popsr.sr.Key``.
        portable: as in :func:`apply_updates`.
        offset: likewise.
    Returns:
        A ``GradientTransformationExtraArgs``, whose ``update`` needs the parameters.
    Raises:
        TypeError: ``key`` is missing.
    """
    root, inside = _read_key("stochastic_rounding", key), optax.with_extra_args_support(inner)

    def init(params: Any) -> RoundingState:
        return RoundingState(jnp.zeros((), jnp.int32), inside.init(_widened(params)))

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, RoundingState]:
        if params is None:
            raise ArgumentTypeError(
                "stochastic_rounding: params are missing, expected update(grads, state, params)"
            )
        wide = _widened(params)
        updates, after = inside.update(_widened(grads), state.inner, wide, **extra)
        count = state.count + 1
        rounded = apply_updates(params, updates, key=root.at(count), portable=portable, offset=offset)
        return jax.tree.map(_difference, params, rounded, updates), RoundingState(count, after)

    return optax.GradientTransformationExtraArgs(init, update)


def _read_key(op: str, key: Any) -> Key:
    if isinstance(key, (Key, EagerKey)):
        return Key(key)
    got = "none" if key is REQUIRED or key is None else type_name(key)
    raise ArgumentTypeError(
        f"{op}: key is missing or of the wrong type, got {got}, expected popsr.sr.Key(seed)"
    )


def _is_narrow(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.floating)) and x.dtype.itemsize < 4


def _widened(tree: Any) -> Any:
    return jax.tree.map(lambda x: x.astype(jnp.float32) if _is_narrow(x) else x, tree)


def _difference(before: Any, after: Any, update: Any) -> Any:
    """Exact in fp32 for neighbours; wider parameters keep their updates."""
    if not _is_narrow(before):
        return update
    return after.astype(jnp.float32) - before.astype(jnp.float32)


__dir__ = names_only(__all__)
