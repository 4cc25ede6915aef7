"""JAX's own answer: a step on a mesh of host devices beside itself on a mesh of one device, in float64."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import jax
import numpy as np

from tests_py.bridge.jax.compare import devices
from tests_py.bridge.same.planted.cases import Program, Truth, part_of

__all__ = ["names_of", "states_of", "truth"]

QUICK: dict[str, Any] = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


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


def new_values(program: Program, ones: bool, steps: int) -> list[list[Any]]:
    """Global arrays of all states and results after each step; each device goes on with values of its own."""
    run = compiled(program, ones)
    args, found = program.args, []
    states = len(states_of(program))
    for _ in range(steps):
        out = run(*jax.device_put(args, run.input_shardings[0]))
        found.append(jax.tree.leaves(out))
        args = (*out[:states], *args[states:])
    return found


@functools.lru_cache(maxsize=4)
def values_of_one(program: Program, steps: int) -> list[list[Any]]:
    """Values on one device, as arrays of the host."""
    return [[np.asarray(leaf) for leaf in after] for after in new_values(program, True, steps)]


def truth(program: Program, steps: int = 2, like: Program | None = None) -> Truth:
    """The answer of JAX on a step; ``like`` is another step whose values on one device are the right ones."""
    with jax.enable_x64(True):
        return compare(program, new_values(program, False, steps), values_of_one(like or program, steps))


def compare(program: Program, many: list[list[Any]], one: list[list[Any]]) -> Truth:
    """Compares each device's part of each array with that part of one device's."""
    before = [np.asarray(leaf) for leaf in jax.tree.leaves(program.args[: len(states_of(program))])]
    deviations, in_step = [], True
    for arrays, wholes in zip(many, one, strict=True):
        assert all(np.isfinite(whole).all() for whole in wholes), "one device has undefined values"
        changes = [np.abs(new - old).max() for new, old in zip(wholes, before, strict=False)]
        changes.append(np.abs(wholes[-1]).max())
        worst = []
        for array, whole, change in zip(arrays, wholes, changes, strict=True):
            first: dict[str, Any] = {}
            parts = []
            for shard in array.addressable_shards:
                part = np.asarray(shard.data)
                in_step &= np.array_equal(part, first.setdefault(str(shard.index), part), equal_nan=True)
                parts.append(part_of(np.abs(part - whole[shard.index]).max(), change))
            worst.append(max(parts))
        deviations.append(dict(zip(names_of(program), worst, strict=True)))
        before = wholes[:-1]
    return Truth(deviations, in_step)
