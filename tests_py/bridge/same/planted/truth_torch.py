"""torch's own answer: a step on threads that are ranks beside itself on one rank, in float64."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import torch

from tests_py.bridge.same.planted.cases import Truth, part_of
from tests_py.bridge.same.planted.torch_layers import Cut, TorchProgram
from tests_py.bridge.torch import gloo
from tests_py.bridge.torch.ranks import run_ranks

__all__ = ["names_of", "truth"]

Values = dict[str, Any]


def coordinates(program: TorchProgram, rank: int) -> dict[str, int]:
    """Place of a rank along each axis."""
    sizes = tuple(program.mesh.values())
    return dict(zip(program.mesh, map(int, np.unravel_index(rank, sizes)), strict=True))


def part(program: TorchProgram, whole: Any, cut: Cut | None, rank: int) -> Any:
    """A rank's part of a global array."""
    if cut is None:
        return whole
    dim, axis = cut
    return np.split(whole, program.mesh[axis], dim)[coordinates(program, rank)[axis]]


def values(model: Any, optimizer: Any) -> Values:
    """Parameters, buffers and what the optimiser keeps in their shapes."""
    names = {p: name for name, p in model.named_parameters()}
    found = dict([*model.named_parameters(), *model.named_buffers()])
    for p, kept in optimizer.state.items() if optimizer is not None else ():
        found |= {
            f"optimizer.{names[p]}.{key}": t for key, t in kept.items() if torch.is_tensor(t) and t.ndim
        }
    return {name: t.detach().numpy().copy() for name, t in found.items()}


def work(program: TorchProgram, rank: int, world: int, steps: int) -> list[Values]:
    """Values of a rank before the first step and after each; the only rank runs the reference."""
    arrays = enumerate(program.batch)
    cut = program.cuts if world > 1 else {}
    batch = [torch.from_numpy(part(program, a, cut.get(i), rank).copy()) for i, a in arrays]
    model = program.make()
    optimizer = program.optimizer(model)
    found = [values(model, optimizer)]
    step = program.step if world > 1 or program.reference is None else program.reference
    for _ in range(steps):
        loss = step(model, optimizer, *batch)
        own = {} if loss is None else {"loss": loss.detach().numpy().copy()}
        found.append(values(model, optimizer) | own)
    return found


def work_of(name: str, bug: str, world: int, steps: int) -> list[Values]:
    """Values of this rank, of a step in the table."""
    table = importlib.import_module("tests_py.bridge.same.planted.torch_table")
    right = next(each for each in table.STEPS if each.name == name)
    return work(right.make(bug), torch.distributed.get_rank(), world, steps)


def run(program: TorchProgram, world: int, steps: int) -> list[list[Values]]:
    """Values of each rank before the first step and after each."""
    if program.found_as is not None:
        return gloo.run(world, work_of, *program.found_as, world, steps)
    return run_ranks(world, lambda rank: work(program, rank, world, steps))


def names_of(program: TorchProgram) -> list[str]:
    """Names of all states and of the loss."""
    return list(run(program, 1, 1)[0][-1])


def truth(program: TorchProgram, steps: int = 2) -> Truth:
    """The answer of torch on a step."""
    many = run(program, int(np.prod([*program.mesh.values()])), steps)
    one = run(program, 1, steps)[0]
    deviations, in_step = [], True
    for step in range(1, steps + 1):
        worst: dict[str, float] = {}
        for name, whole in one[step].items():
            before = one[step - 1].get(name, np.zeros(())) if name != "loss" else np.zeros(())
            assert np.isfinite(whole).all(), name
            update = np.abs(whole - before).max()
            cut = program.cuts.get(name.removeprefix("optimizer.").split(".")[0])
            first: dict[int, Any] = {}
            for rank, found in enumerate(many):
                if name not in found[step]:
                    continue
                mine: Any = found[step][name]
                place = coordinates(program, rank)[cut[1]] if cut else 0
                in_step &= np.array_equal(mine, first.setdefault(place, mine), equal_nan=True)
                gap = part_of(np.abs(mine - part(program, whole, cut, rank)).max(), update)
                worst[name] = max(worst.get(name, 0.0), gap)
        deviations.append(worst)
    return Truth(deviations, bool(in_step))
