"""A function run by JAX on simulated devices beside popsr on simulated replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from popsr.bridge import BridgedStep
from popsr.bridge.jax import from_jax

TINY = 5e-324

__all__ = ["both", "devices", "difference", "primitives_of", "results_of"]


def devices(sizes: Mapping[str, int]) -> Any:
    """A mesh of simulated devices."""
    import jax

    count = int(np.prod([*sizes.values()]))
    return jax.sharding.Mesh(np.array(jax.devices()[:count]).reshape([*sizes.values()]), tuple(sizes))


def both(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    sizes: Mapping[str, int] | None = None,
    specs: Any = None,
    **options: Any,
) -> tuple[BridgedStep, list[Any], list[Any]]:
    """The step, JAX's results as a flat list, and popsr's; ``specs`` are those of arguments and of results."""
    import jax

    keys = {"roles": {}, "updates": {}, **options}
    if sizes is None:
        step = from_jax(f, *args, **keys)
        want = jax.jit(f)(*args)
    else:
        check = keys.pop("check_vma", False)
        in_specs, out_specs = specs
        step = from_jax(f, *args, mesh=sizes, in_specs=in_specs, out_specs=out_specs, check_vma=check, **keys)
        mapped = jax.shard_map(
            f, mesh=devices(sizes), in_specs=in_specs, out_specs=out_specs, check_vma=check
        )
        want = jax.jit(mapped)(*args)
    flat = [stored(leaf) for leaf in jax.tree.leaves(want)]
    step.restart(check=True)
    found = step.run()
    return step, flat, [found[result.path] for result in step.results]


def stored(leaf: Any) -> Any:
    """An array; keys as their words."""
    import jax

    return np.asarray(jax.random.key_data(leaf) if hasattr(leaf.dtype, "_impl") else leaf)


def difference(want: Any, got: Any) -> float:
    """The greatest difference relative to the greatest number; infinite where NaN, infinities or integers differ.

    Zeros of the other sign are no equal bits: a difference that is not 0.
    """
    want, got = np.asarray(want), np.asarray(got)
    if want.shape != got.shape or want.dtype != got.dtype:
        return np.inf
    if want.dtype.kind in "iub":
        return 0.0 if np.array_equal(want, got) else np.inf
    with np.errstate(invalid="ignore"):  # signalling NaN
        wide, other = want.astype(np.float64), got.astype(np.float64)
    finite = np.isfinite(wide)
    if not np.array_equal(finite, np.isfinite(other)) or not np.array_equal(
        wide[~finite], other[~finite], equal_nan=True
    ):
        return np.inf
    if not np.array_equal(np.signbit(wide[wide == 0]), np.signbit(other[wide == 0])):
        return TINY
    if not finite.any():
        return 0.0
    scale = max(float(np.abs(wide[finite]).max()), 1e-30)
    return float(np.abs(wide[finite] - other[finite]).max()) / scale


def primitives_of(jaxpr: Any) -> Iterator[str]:
    """Names of the primitives of a jaxpr and of those inside."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for parameter in equation.params.values():
            for inner in parameter if isinstance(parameter, (tuple, list)) else [parameter]:
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from primitives_of(inner)


def results_of(step: BridgedStep, inputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Results by path, with every replica compared against what is proved."""
    step.restart(check=True)
    return step.run(inputs)
