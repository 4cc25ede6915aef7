"""Pipelines of PyTorch by torch's own schedules."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)
from torch.nn import functional

from tests_py.bridge.same.planted.cases import Bug, Right
from tests_py.bridge.same.planted.torch_layers import TorchProgram, alone, momentum, total
from tests_py.bridge.same.planted.torch_staged import (
    PARTS,
    ROWS,
    WIDTH,
    Stages,
    linear,
    program,
)

__all__ = ["STEPS"]


def scheduled(kind: Any, sizes: tuple[int, int], each: int = 1, **options: Any) -> Any:
    """Stages of torch, so many on each rank, and their schedule; on the only rank one stage."""
    count = sizes[0] * each
    m: Any = Stages(sizes, count)
    numbers = range(m.stage, count, m.stages)
    m.layers = nn.ModuleDict({str(i): linear(i) for i in numbers})
    parts = [(m, 0, 1)]
    if m.stages > 1:
        parts = [(nn.Sequential(m.layers[str(i)], nn.Tanh()), i, count) for i in numbers]
    like = torch.zeros(ROWS // m.copies // PARTS, WIDTH, dtype=torch.float64, requires_grad=True)
    shapes: dict[str, Any] = {"input_args": like, "output_args": like, "group": m.group("pipe")}
    made = [PipelineStage(*part, torch.device("cpu"), **shapes) for part in parts]
    kind = Schedule1F1B if len(made) < each else kind
    m.schedule = kind(
        made if len(made) > 1 else made[0], PARTS, **{"loss_fn": functional.mse_loss, **options}
    )
    return m


def run_schedule(m: Any, x: Any, y: Any) -> Any:
    """The losses of micro batches, on the last stage."""
    losses: list[Any] = []
    given = [x] if m.is_first else []
    if m.is_last:
        m.schedule.step(*given, target=y, losses=losses)
        return torch.stack(losses)
    m.schedule.step(*given)
    return None


def gpipe(bug: str = "") -> TorchProgram:
    """``ScheduleGPipe``: torch divides gradients by the number of micro batches."""

    def step(m: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        losses = run_schedule(m, x, y)
        optimizer.step()
        if bug == "the loss of the first micro batch":
            return None if losses is None else losses[0].clone()  # wrong: the loss of the first micro batch
        return None if losses is None else losses.mean()

    def make() -> Any:
        scaled = bug != "scale_grads is off"
        return scheduled(ScheduleGPipe, (2, 1), scale_grads=scaled)  # wrong: scale_grads is off

    return program("GPipe", bug, step, make, alone())


def sums(bug: str = "") -> TorchProgram:
    """``Schedule1F1B`` with a loss that is a sum over rows: gradients of micro batches are added."""

    def step(m: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        losses = run_schedule(m, x, y)
        optimizer.step()
        return None if losses is None else losses.sum()

    def loss_of(out: Any, y: Any) -> Any:
        return ((out - y) ** 2).sum()

    def make() -> Any:
        options: Any = {"loss_fn": loss_of, "scale_grads": False}
        if bug == "divided by micro batches":
            options["scale_grads"] = True  # wrong: divided by micro batches
        return scheduled(Schedule1F1B, (2, 1), **options)

    return program("1F1B of sums", bug, step, make, alone(loss_of))


def copies(bug: str = "") -> TorchProgram:
    """``Schedule1F1B`` on two ranks for each stage, beside the same schedule on one stage."""

    def step(m: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        losses = run_schedule(m, x, y)
        for p in m.parameters():
            dist.all_reduce(p.grad, group=m.group("data"))
            if bug != "gradients are summed":
                p.grad /= m.copies
        optimizer.step()  # wrong: gradients are summed
        if losses is None:
            return None
        mean = losses.mean() / (1 if bug == "losses are summed" else m.copies)  # wrong: losses are summed
        return total(mean, m.group("data"))

    return program("1F1B of copies", bug, step, lambda: scheduled(Schedule1F1B, (2, 2)), sizes=(2, 2))


def interleaved(bug: str = "") -> TorchProgram:
    """``ScheduleInterleaved1F1B`` of four stages on two ranks."""

    def step(m: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        losses = run_schedule(m, x, y)
        norm = torch.stack([p.grad.norm() ** 2 for p in m.parameters()]).sum()
        if bug != "norm of a stage":
            norm = total(norm, m.group("pipe"))
        for p in m.parameters():
            p.grad *= (0.05 / (norm.sqrt() + 1e-6)).clamp(max=1.0)  # wrong: norm of a stage
        if bug == "rate by stage":
            for p in m.parameters():
                p.grad *= m.stage + 1  # wrong: rate by stage
        if bug == "decay in one stage" and m.is_last:
            for p in m.parameters():
                p.grad += 0.1 * p.detach()  # wrong: decay in one stage
        optimizer.step()
        return None if losses is None else losses.mean()

    def make() -> Any:
        return scheduled(ScheduleInterleaved1F1B, (2, 1), 2)

    def clip(m: Any) -> None:
        nn.utils.clip_grad_norm_(m.parameters(), 0.05)

    reference = alone(functional.mse_loss, clip)
    return program("interleaved 1F1B", bug, step, make, reference, optimizer=momentum)


ODD = "layers.1.* layers.3.* optimizer.layers.1.* optimizer.layers.3.*"

STEPS: tuple[Right, ...] = (
    Right(
        "GPipe",
        gpipe,
        (
            Bug("the loss of the first micro batch", "accumulation and loss scale", "loss"),
            Bug("scale_grads is off", "accumulation and loss scale", "layers.*"),
        ),
    ),
    Right(
        "1F1B of sums",
        sums,
        (Bug("divided by micro batches", "accumulation and loss scale", "layers.*"),),
    ),
    Right(
        "1F1B of copies",
        copies,
        (
            Bug("gradients are summed", "mean versus sum", "layers.*"),
            Bug("losses are summed", "mean versus sum", "loss"),
        ),
    ),
    Right(
        "interleaved 1F1B",
        interleaved,
        (
            Bug("norm of a stage", "clipping norm", "layers.* optimizer.*"),
            Bug("rate by stage", "neighbours and stages", ODD),
            Bug("decay in one stage", "weight decay on shards", ODD),
        ),
    ),
)
