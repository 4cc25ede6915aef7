"""JAX's own answer: a step on a mesh of host devices beside itself on a mesh of one device, in float64."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import jax
import numpy as np

from tests_py.bridge.jax.compare import devices
from tests_py.bridge.same.planted.cases import Program

__all__ = ["compiled", "deviations", "names_of", "new_values", "states_of"]

QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def states_of(program: Program) -> list[str]:
    """Names of the arguments that are states: those that the step returns, but for its results at the end."""
    return list(inspect.signature(program.step).parameters)[: len(program.out_specs) - 1]


def names_of(program: Program) -> list[str]:
    """Names of all states and of the loss, which each step returns last: ``p.w1``."""
    states = states_of(program)
    leaves = [
        "".join([name, *(f".{key.key}" for key in path)])
        for name, arg in zip(states, program.args, strict=False)
        for path, _ in jax.tree_util.tree_leaves_with_path(arg)
    ]
    return [*leaves, "loss"]


def compiled(program: Program, ones: bool = False) -> Any:
    """The step on its mesh, or on a mesh of the same axes whose sizes are 1; without XLA's slow passes."""
    mesh = devices(dict.fromkeys(program.mesh, 1) if ones else program.mesh)
    mapped = jax.shard_map(
        program.step,
        mesh=mesh,
        in_specs=program.in_specs,
        out_specs=program.out_specs,
        check_vma=program.check_vma,
    )
    return jax.jit(mapped).lower(*program.args).compile(compiler_options=QUICK)


def new_values(program: Program, run: Any, steps: int) -> list[list[Any]]:
    """States and results after each step, as flat lists of global arrays; all devices agree on what they share."""
    args, found = program.args, []
    states = len(states_of(program))
    for _ in range(steps):
        out = run(*jax.device_put(args, run.input_shardings[0]))
        leaves = jax.tree.leaves(out)
        found.append([np.asarray(leaf) for leaf in leaves])
        for leaf, whole in zip(leaves, found[-1], strict=True):
            for shard in leaf.addressable_shards:
                part = np.asarray(shard.data)
                assert np.array_equal(part, whole[shard.index], equal_nan=True), "replicas are not in step"
        args = (*jax.tree.map(np.asarray, out[:states]), *args[states:])
    return found


def deviations(program: Program, steps: int = 2) -> list[dict[str, float]]:
    """How far each state is from one device's, as a part of its update, and the loss as a part of itself."""
    with jax.enable_x64(True):
        runs = [new_values(program, compiled(program, ones), steps) for ones in (False, True)]
    return compare(program, *runs)


def compare(program: Program, many: list[list[Any]], one: list[list[Any]]) -> list[dict[str, float]]:
    """The greatest difference of each state after each step, as a part of the greatest update."""
    before = [np.asarray(leaf) for leaf in jax.tree.leaves(program.args[: len(states_of(program))])]
    found = []
    for a, b in zip(many, one, strict=True):
        changes = [new - old for new, old in zip(b, before, strict=False)] + [b[-1]]
        found.append(
            {
                name: part_of(np.abs(x - y).max(), max(np.abs(change).max(), 0.0))
                for name, x, y, change in zip(names_of(program), a, b, changes, strict=True)
            }
        )
        before = b[:-1]
    return found


def part_of(difference: float, whole: float) -> float:
    """A difference as a part of an update; of no update every difference is infinitely large."""
    if not np.isfinite(difference):
        return float("inf")
    return float(difference / whole) if whole else (0.0 if difference == 0 else float("inf"))


@functools.cache
def right_values(make: Any, steps: int = 2) -> list[list[Any]]:
    """What the right step gives on one device."""
    program = make()
    with jax.enable_x64(True):
        return new_values(program, compiled(program, ones=True), steps)
