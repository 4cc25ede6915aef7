"""Verdict of ``popsr.prove(..., like="one device")`` on a step of PyTorch, in the names of the table."""

from __future__ import annotations

import functools
import time
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import popsr
from tests_py.bridge.same.planted.cases import Said
from tests_py.bridge.same.planted.torch_layers import TorchProgram, no_optimizer
from tests_py.bridge.same.planted.truth_torch import names_of, part

__all__ = ["said"]


def batch_of(program: TorchProgram) -> Any:
    """A function of the rank that gives its part of the batch, and all of it to the only rank."""

    def batch(rank: int) -> tuple[Any, ...]:
        cut = program.cuts if dist.get_world_size() > 1 else {}
        arrays = enumerate(program.batch)
        return tuple(torch.from_numpy(part(program, a, cut.get(i), rank).copy()) for i, a in arrays)

    return batch


def _without_optimizer(step: Any, model: Any, *batch: Any) -> Any:
    return step(model, None, *batch)


def said(program: TorchProgram, exact: bool) -> Said:
    """The verdict about a step; it is of all states and results."""
    start = time.process_time()
    world = int(np.prod([*program.mesh.values()]))
    step: Any = program.step
    optimizer: Any = program.optimizer
    if optimizer is no_optimizer:
        step, optimizer = functools.partial(_without_optimizer, step), None
    reference = "one device" if program.reference is None else program.reference
    proof = popsr.prove(
        step,
        program.make,
        optimizer,
        batch_of(program),
        replicas=world,
        like=reference,
        equal=program.equal,
        exact=exact,
    )
    seconds = time.process_time() - start
    return Said.of(proof, lambda path: "loss" if path == "result" else path, names_of(program), seconds)
