"""Pipelines of PyTorch: stages that send each other activations and gradients, on the only rank all in one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from tests_py.bridge.same.planted.cases import Bug, Right
from tests_py.bridge.same.planted.numbers import draw, integers
from tests_py.bridge.same.planted.torch_layers import CopyTo, SumFrom, TorchProgram, part_of, sgd, total

__all__ = ["STEPS"]

WIDTH, PARTS, ROWS = 3, 2, 8
messages: Any = dist
DATA_CUTS: Any = {0: (0, "data"), 1: (0, "data")}


def linear(number: int) -> Any:
    """A layer with weights of its number."""
    made = nn.Linear(WIDTH, WIDTH).double()
    for name, value in draw(40 + number, weight=(WIDTH, WIDTH), bias=(WIDTH,)).items():
        setattr(made, name, nn.Parameter(torch.from_numpy(value)))
    return made


class Stages(nn.Module):
    """Layers of a rank, under their numbers in the whole model, and its neighbours in the pipeline.

    Args:
        sizes: stages, and ranks of each; one of each on the only rank.
        count: number of layers of all stages.
        make: makes a layer of a number.
    """

    def __init__(
        self, sizes: tuple[int, int], count: int, make: Callable[[int], Any] = linear, beside: str = "data"
    ) -> None:
        """Make the layers of this rank."""
        super().__init__()
        pipe, copies = sizes if dist.get_world_size() > 1 else (1, 1)
        self.mesh = init_device_mesh("cpu", (pipe, copies), mesh_dim_names=("pipe", beside))
        self.stage, self.stages, self.copies = self.mesh.get_local_rank("pipe"), pipe, copies
        ranks = dist.get_process_group_ranks(self.mesh.get_group("pipe"))
        self.is_first, self.is_last = self.stage == 0, self.stage + 1 == pipe
        self.before, self.after = ranks[self.stage - 1], ranks[(self.stage + 1) % pipe]
        own = range(self.stage * count // pipe, (self.stage + 1) * count // pipe)
        self.layers = nn.ModuleDict({str(i): make(i) for i in own})

    def forward(self, h: Any) -> Any:
        """Run the layers of this rank."""
        for layer in self.layers.values():
            h = torch.tanh(layer(h))
        return h

    def group(self, axis: str) -> Any:
        """Ranks along an axis."""
        return self.mesh.get_group(axis)


def forth(m: Any, x: Any, forward: Any = None) -> tuple[Any, Any]:
    """The input of a stage, received from the one before, and its output, sent to the next one."""
    h = x
    if not m.is_first:
        h = torch.empty(len(x), WIDTH, dtype=torch.float64)
        dist.recv(h, m.before)
        h.requires_grad_()
    out = (forward or m)(h)
    if not m.is_last:
        dist.send(out.detach(), m.after)
    return h, out


def back(m: Any, h: Any, out: Any, loss: Any, change: Callable[[Any], Any] = lambda g: g) -> None:
    """Gradients of a stage: from its loss, or received; those of its input are sent, changed."""
    if m.is_last:
        loss.backward()
    else:
        g = torch.empty_like(out)
        dist.recv(g, m.after)
        out.backward(g)
    if not m.is_first:
        dist.send(change(h.grad), m.before)


def mean_over(m: Any, axis: str = "data") -> None:
    """Means of gradients over the copies of a stage."""
    for p in m.parameters():
        dist.all_reduce(p.grad, group=m.group(axis))
        p.grad /= m.copies


def momentum(m: Any) -> Any:
    return torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)


def program(
    name: str, bug: str, step: Any, make: Any, reference: Any = None, *, sizes: tuple[int, int] = (2, 1),
    optimizer: Any = sgd, labels: Any = None, tokens: int = 0, axis: str = "data", cuts: Any = None,
    equal: bool = False,
) -> TorchProgram:  # fmt: skip
    """A step on rows of a batch, of which copies of a stage have parts; without a reference beside itself."""
    x, y = draw(41, x=(ROWS, WIDTH), y=(ROWS, WIDTH)).values()
    if labels is not None:
        x, y = integers(42, tokens, ROWS).astype(np.int64), labels
    mesh = dict(zip(("pipe", axis), sizes, strict=True))
    cuts = DATA_CUTS if cuts is None else cuts
    shared = ("x", "y") if equal else ()
    return TorchProgram(step, make, optimizer, (x, y), mesh, cuts, reference, (name, bug), shared)


def alone(loss_of: Any = functional.mse_loss, before: Callable[[Any], object] = lambda m: None) -> Any:
    """The step as a user writes it for one device: the whole model on the whole batch."""

    def step(m: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(m(x), y)
        loss.backward()
        before(m)
        optimizer.step()
        return loss

    return step


def by_hand(bug: str = "") -> TorchProgram:
    """All micro batches forward, then all backward."""

    def step(m: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        ran = [forth(m, part) for part in x.chunk(PARTS)]
        whole = torch.zeros((), dtype=x.dtype)
        for i, (h, out) in enumerate(ran):
            loss = None
            if m.is_last:
                count = 1 if bug == "sum of the means" else PARTS
                loss = functional.mse_loss(out, y.chunk(PARTS)[i]) / count  # wrong: sum of the means
                whole += loss.detach()
            if bug == "divided again where gradients are sent":
                back(m, h, out, loss, lambda g: g / PARTS)  # wrong: divided again where gradients are sent
            else:
                back(m, h, out, loss)
            if bug == "the last micro batch alone" and i + 1 < PARTS:
                optimizer.zero_grad()  # wrong: the last micro batch alone
        optimizer.step()
        return whole if m.is_last else None

    def optimizer(m: Any) -> Any:
        rate = 0.1 * (m.stages if bug == "rate times stages" else 1)
        return torch.optim.SGD(m.parameters(), lr=rate, momentum=0.9)  # wrong: rate times stages

    return program("stages by hand", bug, step, lambda: Stages((2, 1), 2), alone(), optimizer=optimizer)


def one_by_one(bug: str = "") -> TorchProgram:
    """Two stages of two ranks each, one forward and one backward by turns, with messages that are waited for."""

    def step(m: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        whole = torch.zeros((), dtype=x.dtype)
        for a, b in zip(x.chunk(PARTS), y.chunk(PARTS), strict=True):
            h = a
            if not m.is_first:
                h = torch.empty_like(a)
                messages.irecv(h, m.before).wait()
                h.requires_grad_()
            out = m(h)
            if m.is_last:
                loss = functional.mse_loss(out, b) / PARTS
                loss.backward()
                whole += loss.detach()
            else:
                sent = messages.isend(out.detach(), m.after)
                g = torch.empty_like(out)
                messages.irecv(g, m.after).wait()
                sent.wait()
                out.backward(g)
            if not m.is_first:
                messages.isend(h.grad, m.before).wait()
        for p in m.parameters():
            dist.all_reduce(p.grad, group=m.group("data"))
            count = m.copies
            if bug == "divided by all ranks":
                count = dist.get_world_size()
            if bug == "sum in the last stage" and m.is_last:
                count = 1
            p.grad /= count  # wrong: divided by all ranks, sum in the last stage
        optimizer.step()
        return total(whole, m.group("data")) / m.copies if m.is_last else None

    return program("one forward one backward", bug, step, lambda: Stages((2, 2), 2), sizes=(2, 2))


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


class Tied(Stages):
    """A vocabulary that the first stage embeds with and the last one predicts with."""

    def __init__(self) -> None:
        super().__init__((4, 1), 4)
        self.ends = dist.new_group([0, 3] if self.stages > 1 else [0])
        if self.is_first or self.is_last:
            self.table = nn.Parameter(torch.from_numpy(draw(45, table=(5, WIDTH))["table"]))

    def forward(self, h: Any) -> Any:
        """Embed tokens, run the layers, and predict logits."""
        h = super().forward(self.table[h] if self.is_first else h)
        return h @ self.table.T if self.is_last else h


def labelled(out: Any, y: Any) -> Any:
    """The mean over labels that count."""
    return functional.cross_entropy(out, y, ignore_index=-1)


def tied(bug: str = "") -> TorchProgram:
    """Four stages; labels of -1 do not count, of which micro batches have other numbers."""

    def step(m: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        ran = [forth(m, part, m) for part in x.chunk(PARTS)]
        whole = torch.zeros((), dtype=torch.float64)
        for i, (h, out) in enumerate(ran):
            loss, own = None, y.chunk(PARTS)[i]
            if m.is_last:
                counted = y
                if bug == "means of micro batches":
                    loss = labelled(out, own) / PARTS  # wrong: means of micro batches
                else:
                    if bug == "labels that do not count":
                        counted = torch.zeros_like(y)
                    loss = functional.cross_entropy(out, own, ignore_index=-1, reduction="sum")
                    loss = loss / (counted >= 0).sum()  # wrong: labels that do not count
                whole += loss.detach()
            back(m, h, out, loss)
        if m.is_first or m.is_last:
            dist.all_reduce(m.table.grad, group=m.ends)
            if bug == "mean of both ends":
                m.table.grad /= 2  # wrong: mean of both ends
            if bug == "summed twice":
                dist.all_reduce(m.table.grad, group=m.ends)  # wrong: summed twice
        optimizer.step()
        return whole if m.is_last else None

    labels = integers(46, 5, ROWS).astype(np.int64)
    labels[[0, 2, 5]] = -1
    return program("tied stages", bug, step, Tied, alone(labelled), sizes=(4, 1), labels=labels, tokens=5)


def clipped(bug: str = "") -> TorchProgram:
    """Gradients are clipped by the norm of those of all stages; the vocabulary counts once."""

    def clip(m: Any) -> None:
        nn.utils.clip_grad_norm_(m.parameters(), 0.05)

    def step(m: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        ran = [forth(m, part, m) for part in x.chunk(PARTS)]
        for i, (h, out) in enumerate(ran):
            back(m, h, out, functional.cross_entropy(out, y.chunk(PARTS)[i]) / PARTS if m.is_last else None)
        if m.is_first or m.is_last:
            dist.all_reduce(m.table.grad, group=m.ends)
        counted = dict(m.named_parameters())
        if m.is_last and m.stages > 1 and bug != "the vocabulary counts twice":
            del counted["table"]
        norms = torch.stack([p.grad.norm() ** 2 for p in counted.values()]).sum()
        if bug == "norms are added":
            norms = norms.sqrt()
        norms = total(norms, m.group("pipe"))
        norm = norms if bug == "norms are added" else norms.sqrt()
        scale = (0.05 / (norm + 1e-6)).clamp(max=1.0)
        for p in m.parameters():
            p.grad *= scale  # wrong: norms are added, the vocabulary counts twice
        optimizer.step()

    labels = integers(47, 5, ROWS).astype(np.int64)
    reference = alone(functional.cross_entropy, clip)
    return program(
        "clipped stages", bug, step, Tied, without_result(reference), sizes=(4, 1), labels=labels, tokens=5
    )


def without_result(step: Any) -> Any:
    """A step that returns nothing."""

    def run(m: Any, optimizer: Any, x: Any, y: Any) -> None:
        step(m, optimizer, x, y)

    return run


class Cut(Stages):
    """Layers that two ranks of each stage have parts of."""

    def __init__(self) -> None:
        super().__init__((2, 2), 2, lambda i: nn.Identity(), "model")
        for i in map(int, self.layers):
            values = draw(50 + i, up=(WIDTH, 4), down=(4, WIDTH))
            for name, dim in (("up", 1), ("down", 0)):
                part = part_of(torch.from_numpy(values[name]), (dim, "model"), self.mesh).clone()
                setattr(self, f"{name}{i}", nn.Parameter(part))

    def run(self, h: Any, enter: Any, leave: Any) -> Any:
        """Run the layers of this rank with what stands before and after each."""
        for i in self.layers:
            hidden = torch.tanh(enter(h, self.group("model")) @ getattr(self, f"up{i}"))
            h = h + leave(hidden @ getattr(self, f"down{i}"), self.group("model"))
        return h

    def forward(self, h: Any) -> Any:
        return self.run(h, CopyTo.apply, SumFrom.apply)


def tensor(bug: str = "") -> TorchProgram:
    """Two stages of layers that are cut by columns and rows."""

    def enter(h: Any, group: Any) -> Any:
        if bug == "no sum backward":
            return h  # wrong: no sum backward
        return CopyTo.apply(h, group)

    def leave(h: Any, group: Any) -> Any:
        h = SumFrom.apply(h, group)
        if bug == "mean of partial outputs":
            h = h / 2  # wrong: mean of partial outputs
        return h

    def step(m: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        ran = [forth(m, part, lambda h: m.run(h, enter, leave)) for part in x.chunk(PARTS)]
        for i, (h, out) in enumerate(ran):
            loss = functional.mse_loss(out, y.chunk(PARTS)[i]) / PARTS if m.is_last else None
            if bug == "sent gradients are summed":
                back(
                    m, h, out, loss, lambda g: total(g, m.group("model"))
                )  # wrong: sent gradients are summed
            else:
                back(m, h, out, loss)
        optimizer.step()

    cuts: Any = {f"up{i}": (1, "model") for i in range(2)} | {f"down{i}": (0, "model") for i in range(2)}
    reference = without_result(alone())
    return program("cut stages", bug, step, Cut, reference, sizes=(2, 2), axis="model", cuts=cuts, equal=True)


def wrapped(bug: str = "") -> TorchProgram:
    """Stages in ``DistributedDataParallel`` over their copies."""

    def make() -> Any:
        m = Stages((2, 2), 2)
        return DistributedDataParallel(m, process_group=m.group("data"))

    def step(ddp: Any, optimizer: Any, x: Any, y: Any) -> Any:
        m = ddp.module
        optimizer.zero_grad()
        for a, b in zip(x.chunk(PARTS), y.chunk(PARTS), strict=True):
            h, out = forth(m, a, ddp)
            loss = functional.mse_loss(out, b) / PARTS if m.is_last else None
            if m.is_last and bug == "times the copies":
                loss = loss * m.copies  # wrong: times the copies
            back(m, h, out, loss)
        if bug == "means once more by copies":
            for p in m.parameters():
                p.grad /= m.copies  # wrong: means once more by copies
        optimizer.step()

    return program("wrapped stages", bug, step, make, sizes=(2, 2))


def norms(bug: str = "") -> TorchProgram:
    """Norms in each stage, whose weights are ones, and the input once more at the end."""

    class Normed(Stages):
        def __init__(self) -> None:
            super().__init__((2, 2), 2)
            self.norms = nn.ModuleDict({i: nn.LayerNorm(WIDTH).double() for i in self.layers})

        def forward(self, h: Any) -> Any:
            for i, layer in self.layers.items():
                h = torch.tanh(layer(self.norms[i](h)))
            return h

    def step(m: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        for a, b in zip(x.chunk(PARTS), y.chunk(PARTS), strict=True):
            h, out = forth(m, a)
            loss = None
            if m.is_last:
                own = a if bug != "the rows of the first micro batch" else x.chunk(PARTS)[0]
                loss = functional.mse_loss(out + own, b) / PARTS  # wrong: the rows of the first micro batch
            back(m, h, out, loss)
        mean_over(m)
        for name, p in m.named_parameters():
            if bug == "norms are not averaged" and "norms" in name:
                dist.all_reduce(p.grad, group=m.group("data"))  # wrong: norms are not averaged
        optimizer.step()

    def reference(m: Any, optimizer: Any, x: Any, y: Any) -> None:
        alone(lambda out, y: functional.mse_loss(out + x, y))(m, optimizer, x, y)

    return program("norms in stages", bug, step, Normed, reference, sizes=(2, 2))


ODD = "layers.1.* layers.3.* optimizer.layers.1.* optimizer.layers.3.*"

STEPS: tuple[Right, ...] = (
    Right(
        "stages by hand",
        by_hand,
        (
            Bug("sum of the means", "accumulation and loss scale", "*"),
            Bug("divided again where gradients are sent", "neighbours and stages", "layers.0.* optimizer.layers.0.*"),
            Bug("the last micro batch alone", "accumulation and loss scale", "layers.* optimizer.*"),
            Bug("rate times stages", "mean versus sum", "layers.*"),
        ),
    ),
    Right(
        "one forward one backward",
        one_by_one,
        (
            Bug("divided by all ranks", "mean versus sum", "layers.*"),
            Bug("sum in the last stage", "mean versus sum", "layers.1.*"),
        ),
    ),
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
    Right(
        "tied stages",
        tied,
        (
            Bug("means of micro batches", "unequal numbers of labels", "*"),
            Bug("labels that do not count", "unequal numbers of labels", "*"),
            Bug("mean of both ends", "tied weights", "table"),
            Bug("summed twice", "tied weights", "table"),
        ),
    ),
    Right(
        "clipped stages",
        clipped,
        (
            Bug("norms are added", "clipping norm", "*"),
            Bug("the vocabulary counts twice", "clipping norm", "*"),
        ),
    ),
    Right(
        "cut stages",
        tensor,
        (
            Bug("no sum backward", "neighbours and stages", "up0 down0"),
            Bug("mean of partial outputs", "mean versus sum", "*"),
            Bug("sent gradients are summed", "sums in both passes", "up0 down0"),
        ),
    ),
    Right(
        "wrapped stages",
        wrapped,
        (
            Bug("times the copies", "mean versus sum", "*"),
            Bug("means once more by copies", "mean versus sum", "*"),
        ),
    ),
    Right(
        "norms in stages",
        norms,
        (
            Bug("the rows of the first micro batch", "neighbours and stages", "*"),
            Bug("norms are not averaged", "sequence-parallel norm", "norms.*"),
        ),
    ),
)  # fmt: skip
