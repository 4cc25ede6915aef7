"""Steps that the compiler shards: the mesh that shardings name, and how arguments lie on it.

Outside of ``shard_map`` such a step is one global program: each array has one value, of which devices hold parts or
copies. A sharding changes no value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from popsr._support.text.shown import shown
from popsr.bridge.jax._manual import read_spec
from popsr.bridge.jax._mesh import Spec, Spread
from popsr.bridge.jax._rules.calls import jaxprs_inside
from popsr.bridge.jax._rules.table import Aval, NotSupportedError
from popsr.errors import ReplicaError

__all__ = ["compiler_keeps", "layouts_of", "mesh_of_shardings"]


def mesh_of_shardings(jaxpr: Any, leaves: Sequence[Any]) -> Any:
    """The mesh of the shardings that arguments and equations outside of ``shard_map`` have; None without one.

    Args:
        jaxpr: open.
        leaves: the arrays that the step is traced with.
    Raises:
        ReplicaError: shardings of meshes with other numbers of devices.
    """
    found = None
    for sharding in _shardings(jaxpr, leaves):
        mesh = sharding.mesh
        if found is None:
            found = mesh
        elif mesh.size != found.size:
            raise ReplicaError(
                f"from_jax: shardings of meshes that differ in size, got {mesh.size} devices beside {found.size}, "
                f"{shown(dict(mesh.shape))} beside {shown(dict(found.shape))}, expected one mesh"
            )
    return found


def _shardings(jaxpr: Any, leaves: Sequence[Any]) -> Iterator[Any]:
    for leaf in leaves:
        yield from _named(getattr(leaf, "sharding", None))
    for var in jaxpr.invars:
        yield from _named(getattr(var.aval, "sharding", None))
    for equation in jaxpr.eqns:
        if equation.primitive.name == "shard_map":
            continue
        for name in ("in_shardings", "out_shardings", "sharding", "dst_sharding", "out_sharding", "devices"):
            yield from _named(equation.params.get(name))
        for inner in jaxprs_inside(equation):
            yield from _shardings(inner, ())


def _named(given: Any) -> Iterator[Any]:
    """Shardings by axes of a mesh of several devices, among one or a tuple of any kind."""
    for each in given if isinstance(given, (tuple, list)) else [given]:
        mesh: Any = getattr(each, "mesh", None)
        if hasattr(each, "spec") and not getattr(mesh, "empty", True) and mesh.size > 1:
            yield each


def layouts_of(jaxpr: Any, leaves: Sequence[Any], avals: Sequence[Aval], spread: Spread) -> list[Spec]:
    """The cut of each argument on the mesh, as the outermost ``jit`` or the array itself says.

    An argument that lies in a way that the mesh of the replicas does not describe counts as whole.
    """
    told = _shardings_of_jit(jaxpr)
    layouts = []
    for var, leaf, aval in zip(jaxpr.invars, leaves, avals, strict=True):
        known = (told.get(id(var)), getattr(leaf, "sharding", None), getattr(var.aval, "sharding", None))
        sharding = next((each for candidate in known for each in _named(candidate)), None)
        layouts.append(_layout(sharding, aval, spread))
    return layouts


def _shardings_of_jit(jaxpr: Any) -> dict[int, Any]:
    """The shardings that a step which is one ``jit`` asks of its arguments."""
    if len(jaxpr.eqns) != 1 or jaxpr.eqns[0].params.get("in_shardings") is None:
        return {}
    [equation] = jaxpr.eqns
    pairs = zip(equation.invars, equation.params["in_shardings"], strict=True)
    return {id(atom): sharding for atom, sharding in pairs}


def _layout(sharding: Any, aval: Aval, spread: Spread) -> Spec:
    whole: Spec = ((),) * aval.rank
    if sharding is None or {str(axis): size for axis, size in sharding.mesh.shape.items()} != dict(
        spread.sizes
    ):
        return whole
    try:
        spec = read_spec(sharding.spec, aval.rank)
    except NotSupportedError:
        return whole
    if len(spec) != aval.rank or getattr(sharding.spec, "unreduced", None):
        return whole
    extents = zip(aval.shape, spec, strict=True)
    return spec if all(extent % spread.size(axes) == 0 for extent, axes in extents) else whole


def compiler_keeps(spread: Spread) -> str:
    """The note of a proof of such a step."""
    axes = ", ".join(f"{axis}={size}" for axis, size in spread.sizes.items())
    return (
        f"sharded by the compiler over {axes}: outside of shard_map the step is one program, whose arrays have one "
        "value each, and the compiler keeps copies equal; proved are what runs inside shard_map, and that two traces "
        "agree"
    )
