"""Tensor-, sequence-, context- and expert-parallel steps of PyTorch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests_py.bridge.same.planted.cases import Bug, Right
from tests_py.bridge.same.planted.numbers import draw, integers
from tests_py.bridge.same.planted.torch_layers import (
    CopyTo,
    Gather,
    ScatterSum,
    SumBoth,
    SumFrom,
    TorchProgram,
    Weights,
    attend,
    sgd,
    size_of,
    total,
)

__all__ = ["STEPS"]

GRID = {"data": 2, "model": 2}


def mean_over(m: Any, axis: str = "data") -> None:
    """Gradients become means over an axis."""
    for p in m.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad, group=m.group(axis))
            p.grad /= m.size(axis)


def mean_loss(m: Any, loss: Any, axis: str = "data") -> Any:
    """The mean of a loss over an axis."""
    return total(loss, m.group(axis)) / m.size(axis)


def norm(h: Any, g: Any) -> Any:
    return functional.layer_norm(h, h.shape[-1:]) * g


def heads(x: Any, w: Any) -> Any:
    return torch.einsum("btd,hdk->bhtk", x, w)


def block(bug: str = "") -> TorchProgram:
    """Attention and a layer with heads and columns over ``model``."""

    def output(m: Any, part: Any, bias: Any) -> Any:
        if bug == "bias of each rank":
            return SumFrom.apply(part + bias, m.group("model"))  # wrong: bias of each rank
        if bug == "mean for a sum":
            return SumFrom.apply(part, m.group("model")) / m.size("model") + bias  # wrong: mean for a sum
        if bug == "sum in both passes":
            return SumBoth.apply(part, m.group("model")) + bias  # wrong: sum in both passes
        return SumFrom.apply(part, m.group("model")) + bias

    def step(m: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        h = m.emb[x]
        a = CopyTo.apply(norm(h, m.g1), m.group("model"))
        count = m.q.shape[0] if bug == "scaled by local heads" else 4
        scale = 1 / math.sqrt(8 / count)  # wrong: scaled by local heads
        out = attend(heads(a, m.q), heads(a, m.k), heads(a, m.v), scale)  # wrong: scaled by local heads
        h = h + output(m, torch.einsum("bhtk,hkd->btd", out, m.o), m.c)
        a = CopyTo.apply(norm(h, m.g2), m.group("model"))
        h = h + output(m, torch.tanh(a @ m.up) @ m.down, m.b)
        loss = functional.cross_entropy((h @ m.emb.T).flatten(0, 1), y.flatten())
        loss.backward()
        if bug == "norms summed over model":
            dist.all_reduce(m.g1.grad, group=m.group("model"))  # wrong: norms summed over model
        mean_over(m)
        optimizer.step()
        return mean_loss(m, loss)

    shapes: Any = {"emb": (6, 8), "g1": (8,), "g2": (8,), "q": (4, 8, 2), "k": (4, 8, 2), "v": (4, 8, 2)}
    values = draw(21, **shapes, o=(4, 2, 8), c=(8,), up=(8, 12), down=(12, 8), b=(8,))
    cuts: Any = dict.fromkeys(("q", "k", "v", "o", "down"), (0, "model")) | {"up": (1, "model")}
    cuts |= {0: (0, "data"), 1: (0, "data")}
    batch = (integers(2, 6, 4, 3).astype(np.int64), integers(3, 6, 4, 3).astype(np.int64))
    return TorchProgram(step, lambda: Weights(GRID, values, cuts), sgd, batch, GRID, cuts)


def clipping(bug: str = "") -> TorchProgram:
    def step(m: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        h = torch.tanh(CopyTo.apply(x @ m.w0, m.group("model")) @ m.up)
        loss = functional.mse_loss(SumFrom.apply(h @ m.down, m.group("model")), y)
        loss.backward()
        mean_over(m)
        sharded = (m.up.grad**2).sum() + (m.down.grad**2).sum()
        whole = (m.w0.grad**2).sum()
        if bug == "replicated weights on each rank":
            square = total(sharded + whole, m.group("model"))  # wrong: replicated weights on each rank
        elif bug == "largest shard":
            square = total(sharded, m.group("model"), dist.ReduceOp.MAX) + whole  # wrong: largest shard
        elif bug == "over all ranks":
            square = total(sharded, None) + whole  # wrong: over all ranks
        else:
            square = total(sharded, m.group("model")) + whole
        for p in m.parameters():
            p.grad *= 0.3 / (square.sqrt() + 1e-6)  # wrong: replicated weights on each rank, over all ranks
        if bug == "decay of shards by ranks":
            m.up.grad += 0.1 * (m.size("model") - 1) * m.up.detach()  # wrong: decay of shards by ranks
        optimizer.step()
        return mean_loss(m, loss)

    values = draw(4, w0=(4, 6), up=(6, 8), down=(8, 2))
    cuts: Any = {"up": (1, "model"), "down": (0, "model"), 0: (0, "data"), 1: (0, "data")}
    batch = tuple(draw(5, x=(4, 4), y=(4, 2)).values())
    return TorchProgram(step, lambda: Weights(GRID, values, cuts), sgd, batch, GRID, cuts)


def sequence_parallel(bug: str = "") -> TorchProgram:
    """Norms on a part of the sequence; positions are learnt."""

    def step(m: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        group, n = m.group("model"), m.size("model")
        first = 0 if bug == "positions from 0" else m.rank("model") * x.shape[1]
        h = x + m.pos[first : first + x.shape[1]]  # wrong: positions from 0
        a = Gather.apply(norm(h, m.g), group, 1)
        part = torch.tanh(a.cumsum(1) @ m.up) @ m.down
        if bug == "bias before the scatter":
            h = h + ScatterSum.apply(part + m.b, group, 1)  # wrong: bias before the scatter
        else:
            h = h + ScatterSum.apply(part, group, 1) + m.b
        count = h.numel() if bug == "mean of the local sequence" else h.numel() * n
        loss = ((h - y) ** 2).sum() / count  # wrong: mean of the local sequence
        loss.backward()
        for p in (m.g, m.b, m.pos):
            dist.all_reduce(p.grad, group=group)
            if bug == "mean of the gradients of norms" and p is m.g:
                p.grad /= n  # wrong: mean of the gradients of norms
        optimizer.step()
        return total(loss, group)

    values = draw(6, g=(4,), pos=(4, 4), up=(4, 6), down=(6, 4), b=(4,))
    cuts: Any = {"up": (1, "model"), "down": (0, "model"), 0: (1, "model"), 1: (1, "model")}
    batch = tuple(draw(7, x=(2, 4, 4), y=(2, 4, 4)).values())
    mesh = {"model": 2}
    return TorchProgram(step, lambda: Weights(mesh, values, cuts), sgd, batch, mesh, cuts)


def vocabulary(bug: str = "") -> TorchProgram:
    """One table, cut over the vocabulary, as embedding and output layer; a cross entropy in parts."""

    def embed(m: Any, x: Any) -> Any:
        part = m.table.shape[0]
        local = x - m.rank("model") * part
        rows = m.table[local.clamp(0, part - 1)]  # wrong: rows of others not masked
        mine = (local >= 0) & (local < part)
        if bug == "rows of others not masked":
            return SumFrom.apply(rows, m.group("model"))  # wrong: rows of others not masked
        return SumFrom.apply(torch.where(mine[..., None], rows, 0.0), m.group("model"))

    def entropy(m: Any, logits: Any, y: Any) -> Any:
        group, part = m.group("model"), logits.shape[-1]
        top = total(logits.detach().amax(-1), group, dist.ReduceOp.MAX)
        exps = torch.exp(logits - top[..., None]).sum(-1)
        count = size_of(group) if bug == "mean of exponentials" else 1
        everything = torch.log(SumFrom.apply(exps, group) / count) + top  # wrong: mean of exponentials
        local = y - m.rank("model") * part
        mine = (local >= 0) & (local < part)
        at = logits.gather(-1, local.clamp(0, part - 1)[..., None])[
            ..., 0
        ]  # wrong: targets of others not masked
        if bug != "targets of others not masked":
            at = torch.where(mine, at, 0.0)
        target = SumFrom.apply(at, group)  # wrong: targets of others not masked
        vocab = part if bug == "smoothing by the local vocabulary" else 8
        smooth = SumFrom.apply(logits.sum(-1), group) / vocab  # wrong: smoothing by the local vocabulary
        return (everything - 0.6 * target - 0.4 * smooth).mean()

    def step(m: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        h = CopyTo.apply(torch.tanh(embed(m, x) @ m.w), m.group("model"))
        out = m.table.detach() if bug == "output layer fixed by ranks" and m.size("model") > 1 else m.table
        loss = entropy(m, h @ out.T, y)  # wrong: output layer fixed by ranks
        loss.backward()
        mean_over(m)
        optimizer.step()
        return mean_loss(m, loss)

    values = draw(28, table=(8, 4), w=(4, 4))
    cuts: Any = {"table": (0, "model"), 0: (0, "data"), 1: (0, "data")}
    batch = (integers(9, 8, 4, 3).astype(np.int64), integers(10, 8, 4, 3).astype(np.int64))
    return TorchProgram(step, lambda: Weights(GRID, values, cuts), sgd, batch, GRID, cuts)


def context_parallel(bug: str = "") -> TorchProgram:
    """Queries of a part of the sequence attend to gathered keys with rotary angles; heads of keys are grouped."""

    def rotary(t: Any, first: int) -> Any:
        angle = ((first + torch.arange(t.shape[2])) * 0.7)[:, None]
        a, b = t[..., :1], t[..., 1:]
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)

    def step(m: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        group = m.group("seq")
        first = m.rank("seq") * x.shape[1]
        angles = 0 if bug == "rotary angles from 0" else first
        q = rotary(heads(x, m.q), angles)  # wrong: rotary angles from 0
        k = rotary(heads(x, m.k), angles)  # wrong: rotary angles from 0
        k, v = Gather.apply(k, group, 2), Gather.apply(heads(x, m.v), group, 2)
        spread = (
            (lambda t: t.repeat(1, m.size("seq"), 1, 1)[:, :4])
            if bug == "heads repeated by ranks"
            else None  # wrong: heads repeated by ranks
        )
        if spread is not None and m.size("seq") > 1:
            k, v = spread(k), spread(v)  # wrong: heads repeated by ranks
        else:
            k, v = (t.repeat_interleave(2, 1) for t in (k, v))
        rows = 0 if bug == "mask of local positions" else first
        out = attend(
            q, k, v, 1 / math.sqrt(2), rows
        )  # wrong: mask of local positions, heads repeated by ranks
        loss = ((torch.einsum("bhtk,hkd->btd", out, m.o) - y) ** 2).sum() / (2 * 4 * 4)
        loss.backward()  # wrong: mask of local positions
        for p in m.parameters():
            dist.all_reduce(p.grad, group=group)
            if bug == "mean of keys" and p is m.k:
                p.grad /= size_of(group)  # wrong: mean of keys
        optimizer.step()
        return total(loss, group)

    values = draw(11, q=(4, 4, 2), k=(2, 4, 2), v=(2, 4, 2), o=(4, 2, 4))
    cuts: Any = {0: (1, "seq"), 1: (1, "seq")}
    batch = tuple(draw(12, x=(2, 4, 4), y=(2, 4, 4)).values())
    mesh = {"seq": 2}
    return TorchProgram(step, lambda: Weights(mesh, values, cuts), sgd, batch, mesh, cuts)


def experts(bug: str = "") -> TorchProgram:
    """Experts on other ranks see gathered rows; gates weigh them, an auxiliary loss balances."""

    def step(m: Any, optimizer: Any, x: Any, y: Any, chosen: Any) -> Any:
        optimizer.zero_grad()
        group, n, local = m.group("expert"), m.size("expert"), m.up.shape[0]
        gates = torch.softmax(x @ m.router, -1)
        kept = functional.one_hot(chosen, 4).to(gates.dtype)
        rows, weights = Gather.apply(x, group, 0), Gather.apply(gates * kept, group, 0)
        first = 0 if bug == "experts from 0" else m.rank("expert") * local
        mine = weights[:, first : first + local]  # wrong: experts from 0
        out = torch.einsum("er,erd->rd", mine.T, torch.tanh(rows @ m.up) @ m.down)  # wrong: experts from 0
        out = ScatterSum.apply(out, group, 0)
        loss = functional.mse_loss(x + out, y)
        share, mean = kept.mean(0), gates.mean(0)
        if bug != "auxiliary loss of local shares":
            share = total(share, group) / n
        count = local if bug == "number of local experts" else 4
        loss = (
            loss + 0.3 * count * (share * mean).sum()
        )  # wrong: auxiliary loss of local shares, number of local experts
        loss.backward()
        dist.all_reduce(m.router.grad, group=group)  # wrong: sum of router gradients
        for p in m.parameters():
            if bug != "sum of router gradients" or p is not m.router:
                p.grad /= n
        optimizer.step()  # wrong: sum of router gradients
        return total(loss, group) / n

    values = draw(13, router=(4, 4), up=(4, 4, 6), down=(4, 6, 4))
    cuts: Any = dict.fromkeys(("up", "down", 0, 1, 2), (0, "expert"))
    batch = (*draw(14, x=(8, 4), y=(8, 4)).values(), np.array([0, 0, 1, 0, 2, 3, 1, 0]))
    mesh = {"expert": 2}
    return TorchProgram(step, lambda: Weights(mesh, values, cuts), sgd, batch, mesh, cuts)


def checkpointed(bug: str = "") -> TorchProgram:
    def step(m: Any, optimizer: Any, x: Any, y: Any) -> Any:
        group = m.group("model")
        optimizer.zero_grad()
        last = SumBoth if bug == "sum in both passes of a checkpoint" else SumFrom

        def layer(h: Any, up: Any, down: Any) -> Any:
            a = CopyTo.apply(h, group)
            return h + last.apply(
                torch.tanh(a @ up) @ down, group
            )  # wrong: sum in both passes of a checkpoint

        h = x @ m.w0
        for i in range(2):
            h = checkpoint(layer, h, m.up[i], m.down[i], use_reentrant=False)
        depth = m.up.shape[0] * (m.size("model") if bug == "scaled by layers on all ranks" else 1)
        loss = functional.mse_loss(h / depth, y)  # wrong: scaled by layers on all ranks
        loss.backward()
        mean_over(m)
        optimizer.step()
        return mean_loss(m, loss)

    values = draw(15, w0=(3, 4), up=(2, 4, 6), down=(2, 6, 4))
    cuts: Any = {"up": (2, "model"), "down": (1, "model"), 0: (0, "data"), 1: (0, "data")}
    batch = tuple(draw(16, x=(4, 3), y=(4, 4)).values())
    return TorchProgram(step, lambda: Weights(GRID, values, cuts), sgd, batch, GRID, cuts)


STEPS = (
    Right(
        "transformer block",
        block,
        (
            Bug("bias of each rank", "sums in both passes", "*"),
            Bug("mean for a sum", "mean versus sum", "*"),
            Bug("sum in both passes", "sums in both passes", "emb g? [qkvoc] up down"),
            Bug("scaled by local heads", "local number of heads", "*"),
            Bug("norms summed over model", "sums in both passes", "g1"),
        ),
    ),
    Right(
        "clipping",
        clipping,
        (
            Bug("replicated weights on each rank", "clipping norm", "w0 up down"),
            Bug("largest shard", "clipping norm", "w0 up down"),
            Bug("over all ranks", "clipping norm", "w0 up down"),
            Bug("decay of shards by ranks", "weight decay on shards", "up"),
        ),
    ),
    Right(
        "sequence parallel",
        sequence_parallel,
        (
            Bug("positions from 0", "context mask and positions", "*"),
            Bug("bias before the scatter", "sums in both passes", "*"),
            Bug("mean of the local sequence", "mean versus sum", "*"),
            Bug("mean of the gradients of norms", "sequence-parallel norm", "g"),
        ),
    ),
    Right(
        "tied vocabulary",
        vocabulary,
        (
            Bug("rows of others not masked", "vocabulary-parallel cross entropy", "*"),
            Bug("mean of exponentials", "vocabulary-parallel cross entropy", "loss"),
            Bug("targets of others not masked", "vocabulary-parallel cross entropy", "*"),
            Bug("smoothing by the local vocabulary", "vocabulary-parallel cross entropy", "*"),
            Bug("output layer fixed by ranks", "tied weights", "table"),
        ),
    ),
    Right(
        "context parallel",
        context_parallel,
        (
            Bug("rotary angles from 0", "context mask and positions", "*"),
            Bug("mask of local positions", "context mask and positions", "*"),
            Bug("heads repeated by ranks", "grouped-query heads", "*"),
            Bug("mean of keys", "grouped-query heads", "k"),
        ),
    ),
    Right(
        "experts",
        experts,
        (
            Bug("experts from 0", "router and auxiliary loss", "*"),
            Bug("auxiliary loss of local shares", "router and auxiliary loss", "router loss"),
            Bug("number of local experts", "router and auxiliary loss", "router loss"),
            Bug("sum of router gradients", "router and auxiliary loss", "router"),
        ),
    ),
    Right(
        "checkpointed layers",
        checkpointed,
        (
            Bug("sum in both passes of a checkpoint", "checkpointed layers", "*0 up down"),
            Bug("scaled by layers on all ranks", "checkpointed layers", "*"),
        ),
    ),
)
