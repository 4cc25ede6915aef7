"""``shard_map``: from arrays to the parts of them that replicas hold, and back."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from popsr._program.building.location import describe_location, short_place
from popsr._support.text.shown import shown
from popsr.bridge.jax._known.per_replica import is_known
from popsr.bridge.jax._mesh import Spec, Spread
from popsr.bridge.jax._refs import any_makes_refs
from popsr.bridge.jax._rules.calls import CALLED, PLACED, jaxprs_inside, name_of
from popsr.bridge.jax._rules.table import Aval, Equation, NotSupportedError, Result, Value, rule
from popsr.bridge.jax._sizes.sharded import Sharded, sliced
from popsr.bridge.jax._versions import specs_of
from popsr.errors import ReplicaError

__all__ = ["meshes_of", "read_spec", "specs_of_arguments", "spread_of"]


def read_spec(spec: Any, rank: int) -> Spec:
    """A PartitionSpec for an array of so many dimensions."""
    if getattr(spec, "unreduced", None):
        raise NotSupportedError(f"spec {spec}")
    entries = [] if spec is None else list(spec)
    if any(entry is not None and not isinstance(entry, (str, tuple)) for entry in entries):
        raise NotSupportedError(f"spec {spec}")
    cuts = [
        () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry) for entry in entries
    ]
    return (*cuts, *((),) * (rank - len(cuts)))


def is_whole(spec: Spec) -> bool:
    """True if no dimension is cut."""
    return not any(spec)


@rule("shard_map", raw=True)
def _shard_map(equation: Equation) -> Result:
    importer, params = equation.importer, equation.params
    require_axes(importer.spread, params["mesh"])
    inner = [
        to_part(equation, value, read_spec(spec, aval.rank))
        for value, spec, aval in zip(equation.values, specs_of(params, "in"), equation.operands, strict=True)
    ]
    with inside_of_map(params) if any_makes_refs(params["jaxpr"]) else contextlib.nullcontext():
        found = importer.closed(params["jaxpr"], inner)
    specs = [
        read_spec(spec, aval.rank)
        for spec, aval in zip(specs_of(params, "out"), equation.results, strict=True)
    ]
    if not _is_checked(params):
        for number, (value, spec) in enumerate(zip(found, specs, strict=True)):
            _expect_copies(
                equation, value, spec, f"output {number} of shard_map at {short_place(describe_location())}"
            )
    return [to_whole(equation, value, spec) for value, spec in zip(found, specs, strict=True)]


def _is_checked(params: Any) -> bool:
    """True if JAX has proved that what counts as a copy is one."""
    return bool(params.get("check_vma", params.get("check_rep", False)))


def _expect_copies(equation: Equation, value: Value, spec: Spec, path: str) -> None:
    """Outside of the map the compiler takes parts of one place for copies, and may use any of them."""
    spread = equation.importer.spread
    cut = {axis for axes in spec for axis in axes}
    copied = [axis for axis in manual_axes(equation.params) if axis not in cut and spread.sizes[axis] > 1]
    if copied and not isinstance(value, np.ndarray):
        equation.importer.builder.expect(path, equation.importer.stand_in(value), spread.group(copied))


def manual_axes(params: Any) -> tuple[str, ...]:
    """The axes that a ``shard_map`` maps over, in the order of the mesh; the compiler has the others."""
    axes = params["mesh"].axis_names
    known = (
        params.get("newly_manual_axes"),
        params.get("manual_axes"),
        set(axes) - set(params.get("auto", ())),
    )
    manual = next(each for each in known if each is not None)
    return tuple(axis for axis in axes if axis in manual)


@contextlib.contextmanager
def inside_of_map(params: Any) -> Iterator[None]:
    """Inside, JAX traces as in the body of a ``shard_map``."""
    axes, mesh = manual_axes(params), params["mesh"]
    with contextlib.ExitStack() as stack:
        core, config = (importlib.import_module(f"jax._src.{name}") for name in ("core", "config"))
        stack.enter_context(core.extend_axis_env_nd([(axis, mesh.shape[axis]) for axis in axes]))
        if "check_vma" in params:
            meshes = importlib.import_module("jax._src.mesh")
            manual = dict.fromkeys(axes, meshes.AxisType.Manual)
            outer = getattr(mesh, "abstract_mesh", mesh)
            stack.enter_context(meshes.use_abstract_mesh(outer.update_axis_types(manual)))
            stack.enter_context(config._check_vma(params["check_vma"]))
        yield


def to_part(equation: Equation, value: Value, spec: Spec) -> Value:
    """The part of this replica of an array."""
    if isinstance(value, Sharded) and value.spec == spec:
        return value.part
    if is_whole(spec):
        return value if is_known(value) else equation.importer.tensor(value)
    return sliced(equation.importer.tensor(value), spec, equation.importer.spread)


def to_whole(equation: Equation, value: Value, spec: Spec) -> Value:
    """The array of which each replica has a part; one that is not cut is what each replica has."""
    return value if is_whole(spec) else Sharded(equation.importer.tensor(value), spec)


def require_axes(spread: Spread, mesh: Any) -> None:
    """The mesh of a ``shard_map`` must be the one that replicas lie in."""
    for name, size in mesh.shape.items():
        if spread.sizes.get(str(name)) != size:
            raise ReplicaError(
                f"from_jax: a mesh that is not the step's, got axis {shown(str(name))} of {size}, expected "
                f"{', '.join(f'{shown(axis)} of {extent}' for axis, extent in spread.sizes.items()) or 'no mesh'}"
            )


def meshes_of(jaxpr: Any) -> Iterator[Any]:
    """The meshes of all ``shard_map`` in a jaxpr, outer ones first."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "shard_map":
            yield equation.params["mesh"]
        for inner in jaxprs_inside(equation):
            yield from meshes_of(inner)


def spread_of(jaxpr: Any) -> Spread | None:
    """The mesh of a jaxpr; None where it has no ``shard_map``."""
    for mesh in meshes_of(jaxpr):
        return Spread({str(name): int(size) for name, size in mesh.shape.items()})
    return None


def specs_of_arguments(jaxpr: Any, avals: list[Aval]) -> list[Spec]:
    """The cut of each argument: as all ``shard_map`` that take it say; none where they differ."""
    uses = _uses(jaxpr)
    specs = []
    for found, aval in zip(uses, avals, strict=True):
        only = {spec if spec is None else read_spec(spec, aval.rank) for spec in found}
        spec = only.pop() if len(only) == 1 else None
        specs.append(((),) * aval.rank if spec is None else spec)
    return specs


def _uses(jaxpr: Any) -> list[list[Any]]:
    """For each argument of a jaxpr the specs of the ``shard_map`` that take it; None for other uses."""
    uses: dict[int, list[Any]] = {id(var): [] for var in jaxpr.invars}
    for equation in jaxpr.eqns:
        name, params = name_of(equation), equation.params
        if name == "shard_map":
            found: list[list[Any]] = [[spec] for spec in specs_of(params, "in")]
        elif name in CALLED and params.get(CALLED[name]) is not None:
            inner = params[CALLED[name]]
            found = _uses(getattr(inner, "jaxpr", inner))
        elif name in PLACED:
            found = [[] for _ in equation.invars]
            uses |= {
                id(out): uses[id(atom)]
                for atom, out in zip(equation.invars, equation.outvars, strict=True)
                if id(atom) in uses
            }
        else:
            found = [[None]] * len(equation.invars)
        for atom, specs in zip(equation.invars, found, strict=True):
            if id(atom) in uses:
                uses[id(atom)] += specs
    return [uses[id(var)] for var in jaxpr.invars]
