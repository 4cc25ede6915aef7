"""Steps as libraries write them, as functions of arrays: modules of Flax NNX, wrappers of Equinox."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from popsr.bridge.jax._framework import the_jax
from popsr.bridge.jax._refs import is_ref
from popsr.errors import AttributeValueError

__all__ = ["Form", "is_of_library", "plain_form"]

_WRAPPERS = ("equinox", "flax")


@dataclass(frozen=True)
class Form:
    """A function and what it is called with.

    Attributes:
        f: the function.
        args: its arguments.
        in_specs: as for ``jax.shard_map``, or None.
        out_specs: likewise.
        updates: which result is the new value of which argument; None: to be inferred.
    """

    f: Callable[..., Any]
    args: tuple[Any, ...]
    in_specs: Any
    out_specs: Any
    updates: Mapping[int, int] | None


def is_of_library(step: Any) -> bool:
    """True for functions that Equinox or Flax wraps."""
    return callable(step) and type(step).__module__.partition(".")[0] in _WRAPPERS


def plain_form(form: Form) -> Form:
    """The step as a function of arrays that changes none of its arguments."""
    return _of_equinox(_of_nnx(form))


def _of_nnx(form: Form) -> Form:
    """Modules and optimisers are states: the function is given what they hold, and returns what it leaves in them."""
    nnx = sys.modules.get("flax.nnx")
    if nnx is None:
        return form
    is_node = nnx.graph.is_graph_node  # references of JAX count as nodes, and are read as they are
    nodes = [n for n, arg in enumerate(form.args) if is_node(arg) and not is_ref(arg)]
    if not nodes:
        return form
    if form.updates is not None:
        raise AttributeValueError(
            "from_jax: updates beside modules of Flax, whose new values are known, got updates, expected none"
        )
    definition, held = nnx.split(tuple(form.args[number] for number in nodes))

    @functools.wraps(form.f)
    def f(*args: Any) -> tuple[Any, ...]:
        modules = nnx.merge(definition, nnx.State({n: args[number] for n, number in enumerate(nodes)}))
        given = [*args]
        for module, number in zip(modules, nodes, strict=True):
            given[number] = module
        out = form.f(*given)
        left = nnx.split(modules)[1]
        return (*(left[n] for n in range(len(nodes))), out)

    args = [*form.args]
    for n, number in enumerate(nodes):
        args[number] = held[n]
    specs = form.out_specs
    if form.in_specs is not None and specs is not None:
        of = _for_each(form.in_specs, len(args))
        specs = (*(of[number] for number in nodes), specs)
    updates = {number: n for n, number in enumerate(nodes)}
    return replace(form, f=f, args=tuple(args), out_specs=specs, updates=updates)


def _for_each(specs: Any, count: int) -> Sequence[Any]:
    """A tree of specs for each argument."""
    return specs if isinstance(specs, (tuple, list)) and len(specs) == count else (specs,) * count


def _of_equinox(form: Form) -> Form:
    """Leaves of arguments and results that are no arrays stay outside, where Equinox wraps the function."""
    if type(form.f).__module__.partition(".")[0] != "equinox":
        return form
    tree = the_jax().tree
    leaves, structure = tree.flatten(form.args)
    known = [_is_array(leaf) for leaf in leaves]

    @functools.wraps(form.f)
    def f(*args: Any) -> Any:
        arrays = iter(tree.leaves(args))
        full = [next(arrays) if is_array else leaf for leaf, is_array in zip(leaves, known, strict=True)]
        out = form.f(*structure.unflatten(full))
        return tree.map(lambda leaf: leaf if _is_array(leaf) else None, out)

    kept = [leaf if is_array else None for leaf, is_array in zip(leaves, known, strict=True)]
    return replace(form, f=f, args=structure.unflatten(kept))


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")
