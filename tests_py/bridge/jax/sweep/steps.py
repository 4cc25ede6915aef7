"""Random steps with two states on meshes of four and eight devices, and their runs by JAX, many in one module."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from tests_py.bridge.jax.compare import devices
from tests_py.bridge.jax.sweep.drawing import SIDE, Drawing, Made
from tests_py.bridge.jax.sweep.moves_local import LOCAL_MOVES
from tests_py.bridge.jax.sweep.moves_mesh import MESH_MOVES

__all__ = ["MESHES", "STATES", "RandomStep", "on_devices", "random_step", "wide_numbers"]

MESHES: dict[int, list[dict[str, int]]] = {
    4: [{"a": 4}, {"a": 2, "b": 2}],
    8: [{"a": 8}, {"a": 2, "b": 4}, {"a": 4, "b": 2}],
}
STATES = 2
KINDS = [np.float32, np.int32, np.float32, np.int32, np.float32]
_SPECIAL = np.array(
    [0x7FC00001, 0xFFC54321, 0x80000000, 0, 0x7F800000, 0xFF800000, 1, 0x80000001, 0x7F800001], np.uint32
).view(np.float32)
# Most of the time would go into what makes modules fast.
QUICK = {"xla_llvm_disable_expensive_passes": True, "xla_cpu_use_fusion_emitters": False}


@dataclass(frozen=True)
class RandomStep:
    """A step, and what it is judged by.

    Attributes:
        seed: makes the same step again.
        sizes: the mesh.
        wide: whether it has 64 bits.
        mapped: the step in its ``shard_map``.
        args: the first arguments.
        specs: of the arguments.
        made: the origins of its values; the first results are the new states.
        taken: the values that become the new states.
        jaxpr: of ``mapped``.
    """

    seed: int
    sizes: dict[str, int]
    wide: bool
    mapped: Callable[..., Any]
    args: tuple[Any, ...]
    specs: tuple[Any, ...]
    made: list[Made | None]
    taken: tuple[int, ...]
    jaxpr: Any


def wide_numbers(wide: bool) -> contextlib.AbstractContextManager[Any]:
    """With or without 64 bits."""
    return jax.enable_x64(wide)


def random_step(seed: int, count: int, wide: bool) -> RandomStep:
    """A step of two to five moves; moves that JAX refuses are left out."""
    rng = np.random.default_rng([seed, count, wide])
    sizes = MESHES[count][rng.integers(len(MESHES[count]))]
    axes = tuple(sizes)
    kinds = [P(), P(), *(P(axis) for axis in axes), P(axes), P(None, axes[0]), P(axes[0], axes[-1])]
    if len(axes) == 1:
        kinds.pop()
    specs = (
        *(kinds[k] for k in rng.integers(2, size=STATES)),
        *(kinds[k] for k in rng.integers(len(kinds), size=3)),
    )
    order = [
        (moves := [LOCAL_MOVES, MESH_MOVES][int(rng.integers(100) < 45)])[rng.integers(len(moves))]
        for _ in range(rng.integers(2, 6))
    ]
    made: list[Made | None] = []
    taken: list[int] = []

    def function(*values: Any) -> Any:
        drawing = Drawing(np.random.default_rng([seed, 1]), sizes, wide, list(values), [None] * len(values))
        for move in order:
            _tried(drawing, move)
        made[:] = drawing.made
        new = []
        taken.clear()
        for x in values[:STATES]:
            place = max(n for n, y in enumerate(drawing.values) if y.dtype == x.dtype)
            taken.append(place)
            new.append(drawing.values[place])
        return (*new, *drawing.values[len(values) :])

    args = arguments(np.random.default_rng([seed, 2]), sizes, specs, 0)
    mesh = devices(sizes)
    outs: Any = tuple(specs[:STATES])

    def mapped(*values: Any) -> Any:
        results = []

        def inner(*parts: Any) -> Any:
            found = function(*parts)
            results.append(len(found))
            return found[:STATES], tuple(found[STATES:])

        states, others = jax.shard_map(
            inner, mesh=mesh, in_specs=specs, out_specs=(outs, P(axes)), check_vma=False
        )(*values)
        return (*states, *others)

    with wide_numbers(wide):
        jaxpr = jax.make_jaxpr(mapped)(*args)
    return RandomStep(seed, sizes, wide, mapped, args, specs, list(made), tuple(taken), jaxpr)


def _tried(drawing: Drawing, move: Callable[[Drawing], Any]) -> None:
    """A move, unless JAX refuses it."""
    before = len(drawing.values)
    try:
        drawing.add(move.__name__, move)
    except (TypeError, ValueError, NotImplementedError, KeyError, IndexError, AssertionError):
        del drawing.values[before:], drawing.made[before:]


def arguments(
    rng: np.random.Generator, sizes: dict[str, int], specs: Sequence[Any], draw: int
) -> tuple[Any, ...]:
    """Arrays whose parts are four by four; odd draws have zeros of both signs, infinities and payloads of NaN."""
    args = []
    for spec, kind in zip(specs, KINDS, strict=True):
        extents = [SIDE, SIDE]
        for dimension, cut in enumerate(spec):
            names = () if cut is None else (cut,) if isinstance(cut, str) else cut
            extents[dimension] *= int(np.prod([sizes[name] for name in names], dtype=np.int64))
        if kind == np.int32:
            args.append(rng.integers(-3, 23, extents).astype(kind))
            continue
        values = rng.uniform(-2, 2, extents).astype(kind)
        if draw % 2:
            values = np.where(
                rng.integers(4, size=extents) == 0,
                _SPECIAL[rng.integers(len(_SPECIAL), size=extents)],
                values,
            )
        args.append(values)
    return tuple(args)


def on_devices(steps: Sequence[RandomStep], runs: int, length: int) -> list[list[list[Any]]]:
    """For each step the values of each run and pass: arrays with a row for each device, states first.

    States go from pass to pass as each device has them.
    """
    from jax.extend.core import jaxpr_as_fun

    mapped = [jaxpr_as_fun(step.jaxpr) for step in steps]

    def together(args: Sequence[tuple[Any, ...]]) -> list[Any]:
        return [f(*each) for f, each in zip(mapped, args, strict=True)]

    compiled, found = None, [[] for _ in steps]  # type: ignore[var-annotated]
    for run in range(runs):
        states: list[Any] = [None] * len(steps)
        for count in range(length):
            args = [_placed(step, run, count, state) for step, state in zip(steps, states, strict=True)]
            if compiled is None:
                compiled = jax.jit(together).lower(args).compile(compiler_options=QUICK)
            results = compiled(args)
            states = [values[:STATES] for values in results]
            for rows, values in zip(found, results, strict=True):
                rows.append([_rows(value) for value in values])
    return found


def _placed(step: RandomStep, run: int, count: int, states: Any) -> tuple[Any, ...]:
    """Arguments on the devices: states of the pass before, and new data."""
    draw = 10 * run + count
    args = arguments(np.random.default_rng([step.seed, 2, draw]), step.sizes, step.specs, run + count)
    mesh = devices(step.sizes)
    placed = [jax.device_put(a, NamedSharding(mesh, spec)) for a, spec in zip(args, step.specs, strict=True)]
    if states is not None:
        placed[:STATES] = states
    return tuple(placed)


def _rows(value: Any) -> Any:
    """The buffer of each device, in the order of the mesh."""
    parts = sorted(value.addressable_shards, key=lambda shard: shard.device.id)
    return np.stack([np.asarray(part.data) for part in parts])
