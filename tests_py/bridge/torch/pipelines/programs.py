"""Pipelines of PyTorch: each a model of a rank and its step, which popsr traces and processes of gloo run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from popsr.errors import ReplicaError, UnsupportedError

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402
from torch.distributed.pipelining import (  # noqa: E402
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: E402, N817

__all__ = ["APART", "PROGRAMS", "WRONG", "Layers", "Program", "batch_of", "optimizer_of"]

Program = tuple[int, Callable[[], Any], Callable[..., Any]]
"""Number of ranks, what makes a rank's model, and the step."""

ROWS, WIDTH, PARTS = 4, 4, 2
"""Rows of a micro batch, width of a layer, micro batches."""


def batch_of(rank: int) -> tuple[Any, Any]:
    """Ranks have batches of their own; stages read of it what they need."""
    generator = torch.Generator().manual_seed(10 + rank)
    shape = (ROWS * PARTS, WIDTH)
    return torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)


def optimizer_of(model: Any) -> Any:
    return torch.optim.AdamW(model.parameters(), lr=0.01)


class Layers(nn.Module):
    """The layers of some stages, under their names in the whole model."""

    def __init__(self, stages: int, own: tuple[int, ...]) -> None:
        super().__init__()
        torch.manual_seed(3)
        made = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(stages)]
        self.layers = nn.ModuleDict({str(i): made[i] for i in own})

    def forward(self, x: Any) -> Any:
        for layer in self.layers.values():
            x = layer(x)
        return x


def place(stages: int) -> tuple[int, list[int]]:
    """Stage of this rank, and the rank of each stage of its pipeline; ranks of one stage are neighbours."""
    width = dist.get_world_size() // stages
    stage, number = divmod(dist.get_rank(), width)
    return stage, [each * width + number for each in range(stages)]


def staged(stages: int) -> Callable[[], Any]:
    return lambda: Layers(stages, (place(stages)[0],))


def averaged(model: Any, stages: int) -> None:
    """Means of gradients over the ranks of each stage."""
    width = dist.get_world_size() // stages
    groups = [dist.new_group(list(range(i * width, i * width + width))) for i in range(stages)]
    for p in model.parameters():
        dist.all_reduce(
            p.grad, dist.ReduceOp.AVG if width == 1 else dist.ReduceOp.SUM, groups[place(stages)[0]]
        )
        p.grad /= width


def gpipe(
    stages: int,
    send: Callable[[Any, int], Any] = dist.send,
    recv: Callable[[Any, int], Any] = dist.recv,
    reduce: Callable[[Any, int], Any] | None = None,
) -> Callable[..., Any]:
    """All micro batches forward, then all backward."""

    def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        stage, ranks = place(stages)
        inputs, outputs, total = [], [], torch.zeros(())
        for part in range(PARTS):
            if stage:
                h = torch.empty(ROWS, WIDTH)
                recv(h, ranks[stage - 1])
                h.requires_grad_()
            else:
                h = x.chunk(PARTS)[part]
            inputs.append(h)
            outputs.append(model(h))
            if stage + 1 < stages:
                send(outputs[-1].detach(), ranks[stage + 1])
        for part in range(PARTS):
            if stage + 1 < stages:
                gradient = torch.empty(ROWS, WIDTH)
                recv(gradient, ranks[stage + 1])
                outputs[part].backward(gradient)
            else:
                loss = F.mse_loss(outputs[part], y.chunk(PARTS)[part]) / PARTS
                loss.backward()
                total += loss.detach()
            if stage:
                send(inputs[part].grad, ranks[stage - 1])
        if reduce is not None:
            reduce(model, stages)
        optimizer.step()
        return total if stage + 1 == stages else None

    return step


def alternating(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    """Two stages, one forward and one backward by turns, with ``isend`` and ``irecv``."""
    optimizer.zero_grad()
    stage, ranks = place(2)
    other = ranks[1 - stage]
    waiting = []
    for part in range(PARTS):
        if stage == 0:
            out = model(x.chunk(PARTS)[part])
            waiting.append(dist.isend(out.detach(), other))
            gradient = torch.empty(ROWS, WIDTH)
            dist.irecv(gradient, other).wait()
            out.backward(gradient)
        else:
            h = torch.empty(ROWS, WIDTH)
            dist.irecv(h, other).wait()
            h.requires_grad_()
            F.mse_loss(model(h), y.chunk(PARTS)[part]).backward()
            waiting.append(dist.isend(h.grad, other))
    for work in waiting:
        work.wait()
    optimizer.step()


def ring(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    """Activations go around all ranks in a batch of messages; gradients are averaged."""
    optimizer.zero_grad()
    rank, world = dist.get_rank(), dist.get_world_size()
    own = model(x)
    kept = own.detach()
    total = torch.zeros_like(kept)
    for _ in range(world - 1):
        got = torch.empty_like(kept)
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, kept, (rank + 1) % world),
                dist.P2POp(dist.irecv, got, (rank - 1) % world),
            ]
        )
        for work in works:
            work.wait()
        total += got
        kept = got
    F.mse_loss(own, total).backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
    optimizer.step()


class Tied(nn.Module):
    """A stage of four; the first and the last have the embedding."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        embedding = nn.Parameter(torch.randn(WIDTH, WIDTH))
        layers = [nn.Linear(WIDTH, WIDTH) for _ in range(4)]
        self.layers = nn.ModuleDict({str(dist.get_rank()): layers[dist.get_rank()]})
        if dist.get_rank() in (0, 3):
            self.embedding = embedding

    def forward(self, x: Any) -> Any:
        if dist.get_rank() == 0:
            x = x @ self.embedding
        for layer in self.layers.values():
            x = layer(x)
        return x @ self.embedding.T if dist.get_rank() == 3 else x


def tied(model: Any, _stages: int) -> None:
    """The gradient of the embedding is the sum of those of both stages."""
    group = dist.new_group([0, 3])
    if dist.get_rank() in (0, 3):
        dist.all_reduce(model.embedding.grad, group=group)


def averaged_in_front(model: Any, stages: int) -> None:
    """Means of gradients, which the last stage forgets."""
    groups = [dist.new_group([2 * i, 2 * i + 1]) for i in range(stages)]
    if place(stages)[0] + 1 < stages:
        for p in model.parameters():
            dist.all_reduce(p.grad, group=groups[place(stages)[0]])


def wrapped() -> Any:
    """The layers of a stage of two, in ``DistributedDataParallel`` over its ranks."""
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    stage = place(2)[0]
    return DDP(Layers(2, (stage,)), process_group=groups[stage])


def scheduled(kind: Any, stages: int, each: int = 1, *, says_shapes: bool = True) -> Callable[[], Any]:
    """Stages of ``torch.distributed.pipelining``, so many on each rank, and their schedule."""

    def make() -> Any:
        rank, world, width = dist.get_rank(), dist.get_world_size(), dist.get_world_size() * each // stages
        groups = [dist.new_group(list(range(i, world, width))) for i in range(width)]
        own = tuple(range(rank // width, stages, stages // each))
        model = Layers(stages, own)
        like = torch.zeros(ROWS, WIDTH, requires_grad=True)
        shapes = {"input_args": like, "output_args": like} if says_shapes else {}
        made = [
            PipelineStage(
                model.layers[str(i)], i, stages, torch.device("cpu"), group=groups[rank % width], **shapes
            )
            for i in own
        ]
        model.schedule = kind(made if each > 1 else made[0], PARTS, loss_fn=F.mse_loss)
        return model

    return make


def run_schedule(stages: int, reduce: Callable[[Any, int], Any] | None = None) -> Callable[..., Any]:
    def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        names = list(model.layers)
        losses: list[Any] = []
        given = [x] if "0" in names else []
        if str(stages - 1) in names:
            model.schedule.step(*given, target=y, losses=losses)
        else:
            model.schedule.step(*given)
        if reduce is not None:
            reduce(model, stages)
        optimizer.step()
        return torch.stack(losses).mean() if losses else None

    return step


PROGRAMS: dict[str, Program] = {
    "two stages": (2, staged(2), gpipe(2)),
    "four stages": (4, staged(4), gpipe(4)),
    "two stages of two ranks": (4, staged(2), gpipe(2, reduce=averaged)),
    "one forward one backward": (2, staged(2), alternating),
    "one forward one backward, two ranks each": (4, staged(2), alternating),
    "ring": (3, lambda: Layers(1, (0,)), ring),
    "tied embedding": (4, Tied, gpipe(4, reduce=tied)),
    "two stages, the first averaged": (4, staged(2), gpipe(2, reduce=averaged_in_front)),
    "tied embedding without its sum": (4, Tied, gpipe(4)),
    "wrapped stages": (4, wrapped, alternating),
    "GPipe": (2, scheduled(ScheduleGPipe, 2), run_schedule(2)),
    "1F1B": (2, scheduled(Schedule1F1B, 2), run_schedule(2)),
    "1F1B, two ranks each": (4, scheduled(Schedule1F1B, 2), run_schedule(2, averaged)),
    "1F1B, the first averaged": (4, scheduled(Schedule1F1B, 2), run_schedule(2, averaged_in_front)),
    "interleaved 1F1B": (2, scheduled(ScheduleInterleaved1F1B, 4, 2), run_schedule(4)),
}
"""Steps that end."""

APART = {
    "one forward one backward, two ranks each": "layers.*",
    "two stages, the first averaged": "layers.1.*",
    "1F1B, the first averaged": "layers.1.*",
    "tied embedding without its sum": "embedding",
}
"""Pattern of the parameters that drift, with their optimiser state, in those that are wrong."""


def first_in_front(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    """Both ranks send first: nobody receives."""
    got = torch.empty_like(x)
    dist.send(x, 1 - dist.get_rank())
    dist.recv(got, 1 - dist.get_rank())
    optimizer.step()


def crossed(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    """One rank averages before it sends, the other one receives before it averages."""
    got = torch.empty_like(x)
    if dist.get_rank() == 0:
        dist.all_reduce(x)
        dist.send(x, 1)
    else:
        dist.recv(got, 0)
        dist.all_reduce(got)


def without_receive(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    if dist.get_rank() == 0:
        dist.isend(x, 1)
        dist.isend(x + 1, 1)
    else:
        dist.recv(torch.empty_like(x), 0)


def without_send(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    if dist.get_rank() == 1:
        dist.recv(torch.empty_like(x), 0)


def of_another_shape(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    if dist.get_rank() == 0:
        dist.send(x, 1)
    else:
        dist.recv(torch.empty(x.shape[1], x.shape[0]), 0)


def in_another_order(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    if dist.get_rank() == 0:
        dist.isend(x, 1, tag=1)
        dist.isend(x[0], 1, tag=2)
    else:
        dist.recv(torch.empty_like(x[0]), 0, tag=2)
        dist.recv(torch.empty_like(x), 0, tag=1)


def from_anyone(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    if dist.get_rank() == 0:
        dist.send(x, 1)
    else:
        dist.recv(torch.empty_like(x))


def written_before_wait(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    if dist.get_rank() == 0:
        work = dist.isend(x, 1)
        x += 1
        work.wait()
    else:
        dist.recv(x, 0)


def on_two_ways(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    if x.sum() > 0:
        x = x + 1
    if dist.get_rank() == 0:
        dist.send(x, 1)
    else:
        dist.recv(y, 0)


def of_other_collectives(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    if dist.get_rank() == 0:
        dist.send(x, 1)
        dist.all_reduce(x)
    else:
        dist.recv(y, 0)
        dist.broadcast(y, 0)


WRONG: dict[Callable[..., Any], tuple[type, str, tuple[int, ...]]] = {
    first_in_front: (ReplicaError, "ranks 0, 1 may wait for each other, got send at .* and send at", (3, 3)),
    crossed: (ReplicaError, "ranks 0, 1 may wait for each other, got all_reduce at .* and recv at", (4, 7)),
    without_receive: (
        ReplicaError,
        "got send at .* on rank 0, where rank 1 receives nothing from rank 0 after",
        (3, 5),
    ),
    without_send: (
        ReplicaError,
        "got recv at .* on rank 1, where rank 0 sends nothing to rank 1 at all",
        (2,),
    ),
    of_another_shape: (
        ReplicaError,
        r"rank 0 sends something else than rank 1 receives, got float32 \[8, 4\] sent at .* and float32 \[4, 8\]",
        (2, 4),
    ),
    in_another_order: (ReplicaError, "with tag 1 sent at .* with tag 2 received at", (2, 5)),
    from_anyone: (UnsupportedError, "a receive from any rank at", (4,)),
    written_before_wait: (UnsupportedError, "what send sends is written at", (3,)),
    on_two_ways: (UnsupportedError, "a step with a branch that asks data calls recv at", (6,)),
    of_other_collectives: (
        ReplicaError,
        "different collectives, got all_reduce at .* and broadcast at",
        (3, 6),
    ),
}
"""Steps of two ranks that are refused: the error, its text and the lines of the step in it."""
