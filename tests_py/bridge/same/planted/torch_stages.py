"""Pipelines of PyTorch by hand: stages that send each other activations and gradients, on the only rank all in one."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from tests_py.bridge.same.planted.cases import Bug, Right
from tests_py.bridge.same.planted.numbers import draw, integers
from tests_py.bridge.same.planted.torch_layers import CopyTo, SumFrom, TorchProgram, alone, part_of, total
from tests_py.bridge.same.planted.torch_staged import (
    PARTS,
    ROWS,
    WIDTH,
    Stages,
    back,
    forth,
    mean_over,
    messages,
    program,
    without_result,
)

__all__ = ["STEPS"]


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


STEPS: tuple[Right, ...] = (
    Right(
        "stages by hand",
        by_hand,
        (
            Bug("sum of the means", "accumulation and loss scale", "*"),
            Bug(
                "divided again where gradients are sent",
                "neighbours and stages",
                "layers.0.* optimizer.layers.0.*",
            ),
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
)
