"""Mutants of a right step, made where JAX has traced it: each collective and each constant of the mesh's size changed.

A mutant is a step again: it traces the right step under the mesh where it is used, changes one equation and runs the
rest as it is. On a mesh of ones every mutant is the right step.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests_py.bridge.same.planted.cases import Program

__all__ = ["Mutation", "mutant", "mutations"]

SUMS = ("psum", "psum_invariant")


@dataclass(frozen=True)
class Mutation:
    """A change of the equation at a place in the order of the trace.

    Attributes:
        place: of the equation among those of its primitive, through all nested functions; others come and go with the
            width of numbers.
        change: what is done, in words.
        primitive: of the equation.
        line: file and line that made the equation.
    """

    place: int
    change: str
    primitive: str
    line: str


def mutant(program: Program, mutation: Mutation) -> Program:
    """The step with one equation changed."""

    @functools.wraps(program.step)
    def step(*args: Any) -> Any:
        leaves, tree = jax.tree.flatten(args)
        flat = lambda *leaves: program.step(*jax.tree.unflatten(tree, leaves))  # noqa: E731
        closed, shape = jax.make_jaxpr(flat, return_shape=True)(*leaves)
        sizes = {axis: int(lax.psum(1, axis)) for axis in program.mesh}
        if max(sizes.values()) > 1:
            closed = closed.replace(jaxpr=changed(closed.jaxpr, mutation, sizes, Counter()))
        out = jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *leaves)
        return jax.tree.unflatten(jax.tree.structure(shape), out)

    return replace(program, step=step)


def changed(jaxpr: Any, mutation: Mutation, sizes: dict[str, int], count: Counter[str]) -> Any:
    """The function with the equation at the mutation's place changed."""
    eqns = []
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        here = name == mutation.primitive and count[name] == mutation.place
        count[name] += 1
        inner = {key: nested(value, mutation, sizes, count) for key, value in eqn.params.items()}
        eqn = eqn.replace(params=inner)
        eqns.append(change_of(eqn, mutation, sizes) if here else eqn)
    return jaxpr.replace(eqns=eqns)


def nested(value: Any, mutation: Mutation, sizes: dict[str, int], count: Counter[str]) -> Any:
    """A parameter of an equation, with the functions in it changed."""
    if isinstance(value, tuple) and any(hasattr(each, "jaxpr") for each in value):
        return tuple(nested(each, mutation, sizes, count) for each in value)
    if hasattr(value, "eqns"):
        if hasattr(value, "consts"):
            return value.replace(jaxpr=changed(value.jaxpr, mutation, sizes, count))
        return changed(value, mutation, sizes, count)
    return value


def change_of(eqn: Any, mutation: Mutation, sizes: dict[str, int]) -> Any:
    """The changed equation, which has the line of the one before."""
    if mutation.change.startswith("constant"):
        _, index, value = mutation.change.split()
        invars = list(eqn.invars)
        old = invars[int(index)]
        invars[int(index)] = type(old)(np.asarray(float(value)).astype(old.aval.dtype)[()], old.aval)
        return eqn.replace(invars=invars)
    function = CHANGES[eqn.primitive.name](eqn, sizes)[mutation.change]
    avals = [jax.ShapeDtypeStruct(var.aval.shape, var.aval.dtype) for var in eqn.invars]
    call = jax.make_jaxpr(jax.jit(lambda *operands: function(*operands)))(*avals).eqns[0]
    body = call.params["jaxpr"]
    inner = [each.replace(source_info=eqn.source_info) for each in body.jaxpr.eqns]
    params = {**call.params, "jaxpr": body.replace(jaxpr=body.jaxpr.replace(eqns=inner))}
    return call.replace(invars=eqn.invars, outvars=eqn.outvars, params=params, source_info=eqn.source_info)


Changes = dict[str, Callable[..., Any]]


def axes_of(eqn: Any) -> tuple[str, ...]:
    names = eqn.params.get("axes", eqn.params.get("axis_name"))
    return names if isinstance(names, tuple) else (names,)


def bound(eqn: Any, **params: Any) -> Callable[..., Any]:
    """The primitive with other parameters."""
    return lambda *operands: as_results(eqn, eqn.primitive.bind(*operands, **{**eqn.params, **params}))


def as_results(eqn: Any, results: Any) -> tuple[Any, ...]:
    return tuple(results) if eqn.primitive.multiple_results else (results,)


def other_axes(eqn: Any, sizes: dict[str, int], equal_sizes: bool) -> list[tuple[str, ...]]:
    """Axes of the mesh in place of a collective's own: each other one, and each of several alone."""
    axes = axes_of(eqn)
    found = [(axis,) for axis in sizes if (axis,) != axes]
    total = int(np.prod([sizes[axis] for axis in axes]))
    return [each for each in found if not equal_sizes or sizes[each[0]] == total]


def of_sum(eqn: Any, sizes: dict[str, int]) -> Changes:
    total = int(np.prod([sizes[axis] for axis in axes_of(eqn)]))
    once = bound(eqn)
    found: Changes = {
        "removed": lambda *x: x,
        "doubled": lambda *x: once(*once(*x)),
        "mean for sum": lambda *x: tuple(t / total for t in once(*x)),
    }
    return found | {f"over {'+'.join(each)}": bound(eqn, axes=each) for each in other_axes(eqn, sizes, False)}


def of_largest(eqn: Any, sizes: dict[str, int]) -> Changes:
    once = bound(eqn)
    found: Changes = {"removed": lambda *x: x, "doubled": lambda *x: once(*once(*x))}
    return found | {f"over {'+'.join(each)}": bound(eqn, axes=each) for each in other_axes(eqn, sizes, False)}


def of_gather(eqn: Any, sizes: dict[str, int]) -> Changes:
    dim, size = eqn.params["all_gather_dimension"], eqn.params["axis_size"]
    join = jnp.concatenate if eqn.params["tiled"] else jnp.stack
    found: Changes = {
        "removed": lambda x: (join([x] * size, dim),),
        "order reversed": lambda x: (reversed_parts(bound(eqn)(x)[0], dim, size),),
    }
    return found | {f"over {each[0]}": bound(eqn, axis_name=each) for each in other_axes(eqn, sizes, True)}


def reversed_parts(whole: Any, dim: int, size: int) -> Any:
    return jnp.concatenate(jnp.split(whole, size, dim)[::-1], dim)


def of_scatter(eqn: Any, sizes: dict[str, int]) -> Changes:
    dim, size = eqn.params["scatter_dimension"], eqn.params["axis_size"]
    axis = axes_of(eqn)

    def own(x: Any) -> Any:
        rows = x.shape[dim] // size
        part = lax.dynamic_slice_in_dim(x, lax.axis_index(axis) * rows, rows, dim)
        return (part if eqn.params["tiled"] else part.squeeze(dim),)

    found: Changes = {
        "removed": own,
        "mean for sum": lambda x: tuple(t / size for t in bound(eqn)(x)),
        "order reversed": lambda x: bound(eqn)(reversed_parts(x, dim, size)),
    }
    return found | {f"over {each[0]}": bound(eqn, axis_name=each) for each in other_axes(eqn, sizes, True)}


def of_exchange(eqn: Any, sizes: dict[str, int]) -> Changes:
    found: Changes = {}
    if eqn.invars[0].aval.shape == eqn.outvars[0].aval.shape:
        found["removed"] = lambda x: (x,)
        found["doubled"] = lambda x: bound(eqn)(*bound(eqn)(x))
    return found | {f"over {each[0]}": bound(eqn, axis_name=each[0]) for each in other_axes(eqn, sizes, True)}


def of_permute(eqn: Any, sizes: dict[str, int]) -> Changes:
    back = tuple((b, a) for a, b in eqn.params["perm"])
    once = bound(eqn)
    found: Changes = {
        "removed": lambda x: (x,),
        "doubled": lambda x: once(*once(x)),
        "other direction": bound(eqn, perm=back),
    }
    return found | {f"over {each[0]}": bound(eqn, axis_name=each) for each in other_axes(eqn, sizes, True)}


def of_index(eqn: Any, sizes: dict[str, int]) -> Changes:
    dtype = eqn.outvars[0].aval.dtype
    found: Changes = {"rank 0": lambda: (jnp.zeros((), dtype),)}
    axes = axes_of(eqn)
    return found | {
        f"over {each}": lambda each=each: (lax.axis_index(each).astype(dtype),)
        for each in sizes
        if (each,) != axes
    }


CHANGES: dict[str, Callable[[Any, dict[str, int]], Changes]] = {
    **dict.fromkeys(SUMS, of_sum),
    "pmax": of_largest,
    "pmin": of_largest,
    "all_gather": of_gather,
    "reduce_scatter": of_scatter,
    "all_to_all": of_exchange,
    "ppermute": of_permute,
    "axis_index": of_index,
}


def equations(jaxpr: Any) -> Iterator[Any]:
    """All equations in the order in which `changed` counts them."""
    for eqn in jaxpr.eqns:
        yield eqn
        for value in eqn.params.values():
            for each in value if isinstance(value, tuple) else (value,):
                if hasattr(each, "eqns"):
                    yield from equations(getattr(each, "jaxpr", each))


def traced(program: Program, ones: bool) -> list[Any]:
    """All equations of a step inside of its mesh."""
    sizes = dict.fromkeys(program.mesh, 1) if ones else dict(program.mesh)
    mesh = jax.sharding.AbstractMesh(tuple(sizes.values()), tuple(sizes))
    mapped = jax.shard_map(
        program.step, mesh=mesh, in_specs=program.in_specs, out_specs=program.out_specs, check_vma=False
    )
    outer = jax.make_jaxpr(mapped)(*program.args)
    body = next(eqn for eqn in outer.jaxpr.eqns if eqn.primitive.name == "shard_map").params["jaxpr"]
    return list(equations(getattr(body, "jaxpr", body)))


def mutations(program: Program) -> list[Mutation]:
    """All mutations of a step that keep the shapes of what it computes; none where JAX follows what varies."""
    if program.check_vma:
        return []
    with jax.enable_x64(True):
        many, one = traced(program, False), traced(program, True)
    sizes = dict(program.mesh)
    alike = [eqn.primitive.name for eqn in many] == [eqn.primitive.name for eqn in one]
    found = []
    count: Counter[str] = Counter()
    for eqn, other in zip_longest(many, one[: len(many)]):
        name = eqn.primitive.name
        changes: Sequence[str] = list(CHANGES[name](eqn, sizes)) if name in CHANGES else []
        if alike:
            changes = [*changes, *constants(eqn, other)]
        found += [Mutation(count[name], change, name, line_of(eqn)) for change in changes]
        count[name] += 1
    return found


def constants(eqn: Any, on_one: Any) -> Iterator[str]:
    """Scalars that have another value on one device; a mutant has that value."""
    for index, (a, b) in enumerate(zip(eqn.invars, on_one.invars, strict=True)):
        scalars = hasattr(a, "val") and hasattr(b, "val") and np.ndim(a.val) == np.ndim(b.val) == 0
        if scalars and a.val != b.val and not np.isnan(a.val):
            yield f"constant {index} {float(b.val)!r}"


def line_of(eqn: Any) -> str:
    """File and line of the innermost frame that is the program's own."""
    from jax._src import source_info_util

    frame = source_info_util.user_frame(eqn.source_info.traceback)
    return f"{frame.file_name.rsplit('/', 1)[-1]}:{frame.start_line}" if frame else ""
