"""Data-parallel steps of PyTorch and sharded optimisers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import functional

from tests_py.bridge.same.planted.cases import Bug, Right
from tests_py.bridge.same.planted.numbers import draw, integers
from tests_py.bridge.same.planted.torch_layers import (
    Gather,
    GatherAlone,
    TorchProgram,
    Weights,
    joined,
    no_optimizer,
    own,
    sgd,
    size_of,
    total,
)

__all__ = ["STEPS"]

DATA = {"data": 4}


def predict(m: Any, x: Any) -> Any:
    return torch.tanh(x @ m.w1) @ m.w2


def mean_gradients(m: Any) -> None:
    for p in m.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad, dist.ReduceOp.SUM)
            p.grad /= dist.get_world_size()


def data_parallel(bug: str = "") -> TorchProgram:
    def step(m: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        reduction = "sum" if bug == "sum over the local batch" else "mean"
        loss = functional.mse_loss(predict(m, x), y, reduction=reduction)  # wrong: sum over the local batch
        loss.backward()
        if bug == "clipped before the mean":
            for p in m.parameters():
                p.grad /= 1 + p.grad.norm()  # wrong: clipped before the mean
        for p in m.parameters():
            dist.all_reduce(p.grad, dist.ReduceOp.SUM)  # wrong: sum of means
            if bug != "sum of means":
                p.grad /= dist.get_world_size()  # wrong: sum over the local batch
        optimizer.step()  # wrong: sum of means, rate times ranks
        if bug == "loss of rank 0":
            loss = loss.detach().clone()
            dist.broadcast(loss, 0)  # wrong: loss of rank 0
            return loss
        return total(loss, None) / dist.get_world_size()

    def optimizer(m: Any) -> Any:
        scale = dist.get_world_size() if bug == "rate times ranks" else 1
        return torch.optim.SGD(m.parameters(), lr=0.1 * scale, momentum=0.9)  # wrong: rate times ranks

    values = draw(1, w1=(4, 6), w2=(6, 2))
    batch = tuple(draw(2, x=(8, 4), y=(8, 2)).values())
    cuts: Any = {0: (0, "data"), 1: (0, "data")}
    return TorchProgram(step, lambda: Weights(DATA, values, cuts), optimizer, batch, DATA, cuts)


def unequal_labels(bug: str = "") -> TorchProgram:
    def step(m: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        if bug == "mean of local means":
            loss = functional.cross_entropy(predict(m, x), y, ignore_index=-1)  # wrong: mean of local means
            loss.backward()
            mean_gradients(m)
            optimizer.step()
            return total(loss, None) / dist.get_world_size()
        count = total((y >= 0).sum().double(), None)
        if bug == "padding of each rank counts":
            count = total(torch.full((), len(y) - 0.5).double(), None)  # wrong: padding of each rank counts
        loss = functional.cross_entropy(predict(m, x), y, ignore_index=-1, reduction="sum") / count
        loss.backward()  # wrong: padding of each rank counts
        for p in m.parameters():
            dist.all_reduce(p.grad)
            if bug == "divided by ranks too":
                p.grad /= dist.get_world_size()  # wrong: divided by ranks too
        optimizer.step()
        return total(loss, None)

    values = draw(3, w1=(4, 6), w2=(6, 5))
    y = integers(4, 5, 8).astype(np.int64)
    y[[0, 1, 5]] = -1
    cuts: Any = {0: (0, "data"), 1: (0, "data")}
    batch = (draw(5, x=(8, 4))["x"], y)
    mesh = {"data": 2}
    return TorchProgram(step, lambda: Weights(mesh, values, cuts), sgd, batch, mesh, cuts)


def accumulation(bug: str = "") -> TorchProgram:
    def step(m: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        n = dist.get_world_size()
        parts = len(x) // 2
        whole = torch.zeros((), dtype=x.dtype)
        for a, b in zip(x.split(2), y.split(2), strict=True):
            count = parts if bug == "micro batches of a rank" else parts * n
            loss = functional.mse_loss(predict(m, a), b) / count  # wrong: micro batches of a rank
            scale = 8.0 * (n if bug == "scale times ranks" else 1)
            (loss * scale).backward()  # wrong: scale times ranks
            whole += loss.detach()
            if bug == "sums in each micro batch":
                for p in m.parameters():
                    dist.all_reduce(p.grad)  # wrong: sums in each micro batch
        for p in m.parameters():
            if bug != "sums in each micro batch":
                dist.all_reduce(p.grad)
            p.grad /= 8.0
        optimizer.step()
        return total(whole, None)

    values = draw(6, w1=(4, 6), w2=(6, 2))
    batch = tuple(draw(7, x=(8, 4), y=(8, 2)).values())
    cuts: Any = {0: (0, "data"), 1: (0, "data")}
    mesh = {"data": 2}
    return TorchProgram(step, lambda: Weights(mesh, values, cuts), sgd, batch, mesh, cuts)


def batch_norm(bug: str = "") -> TorchProgram:
    class Mean(torch.autograd.Function):
        """A mean over ranks; gradients are means too, unless the bug forgets it."""

        @staticmethod
        def forward(ctx: Any, t: Any) -> Any:
            return total(t, None) / dist.get_world_size()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            if bug == "local backward of statistics":
                return g.clone()  # wrong: local backward of statistics
            return total(g, None) / dist.get_world_size()

    def step(m: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        h = x @ m.w1
        mean = Mean.apply(h.mean(0))
        centre = h.mean(0) if bug == "variance about the local mean" else mean
        var = Mean.apply(
            ((h - centre) ** 2).mean(0)
        )  # wrong: variance about the local mean, local backward of statistics
        out = torch.tanh((h - mean) / torch.sqrt(var + 1e-5) * m.g) @ m.w2
        loss = functional.mse_loss(out, y)  # wrong: local backward of statistics
        loss.backward()
        mean_gradients(m)
        optimizer.step()
        rows = len(x) if bug == "unbiased by local rows" else len(x) * dist.get_world_size()
        with torch.no_grad():
            m.mean.lerp_(mean, 0.1)
            m.var.lerp_(var * rows / (rows - 1), 0.1)  # wrong: unbiased by local rows
        return total(loss, None) / dist.get_world_size()

    values = draw(8, w1=(4, 6), g=(6,), w2=(6, 2), mean=(6,), var=(6,))
    batch = tuple(draw(9, x=(12, 4), y=(12, 2)).values())
    cuts: Any = {0: (0, "data"), 1: (0, "data")}
    make = lambda: Weights(DATA, values, cuts, fixed=("mean", "var"))  # noqa: E731
    return TorchProgram(step, make, sgd, batch, DATA, cuts)


def contrastive(bug: str = "") -> TorchProgram:
    def step(m: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        a, b = x @ m.w1, y @ m.w2
        gather = GatherAlone if bug == "gathered without gradients" else Gather
        all_a, all_b = (gather.apply(t, None, 0) for t in (a, b))  # wrong: gathered without gradients
        first = 0 if bug == "labels from 0" else dist.get_rank() * len(x)
        labels = first + torch.arange(len(x))
        left = functional.cross_entropy(
            a @ all_b.T, labels
        )  # wrong: labels from 0, gathered without gradients
        loss = left + functional.cross_entropy(b @ all_a.T, labels)
        loss.backward()
        mean_gradients(m)
        optimizer.step()
        return total(loss, None) / dist.get_world_size()

    values = draw(10, w1=(4, 3), w2=(5, 3))
    batch = tuple(draw(11, x=(8, 4), y=(8, 5)).values())
    cuts: Any = {0: (0, "data"), 1: (0, "data")}
    return TorchProgram(step, lambda: Weights(DATA, values, cuts), sgd, batch, DATA, cuts)


def teacher(bug: str = "") -> TorchProgram:
    """A frozen layer, decay by hand, and a moving average of weights."""

    def step(m: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        n = dist.get_world_size()
        loss = functional.mse_loss(torch.tanh(x @ m.frozen + x @ m.w1) @ m.w2, y)
        loss.backward()
        with torch.no_grad():
            for p in m.parameters():
                if bug == "decay before the sum":
                    p.grad = p.grad / n + 0.1 * p  # wrong: decay before the sum
                    dist.all_reduce(p.grad)  # wrong: decay before the sum
                else:
                    dist.all_reduce(p.grad)
                    p.grad = p.grad / n + 0.1 * p
            optimizer.step()
            keep = 0.9**n if bug == "average by ranks" else 0.9
            m.average.mul_(keep).add_(m.w1, alpha=1 - keep)  # wrong: average by ranks
            if bug == "frozen weights averaged wrongly":
                m.frozen.copy_(total(m.frozen, None) / (n + 1) * 2)  # wrong: frozen weights averaged wrongly
        return total(loss, None) / n

    values = draw(12, frozen=(4, 6), average=(4, 6), w1=(4, 6), w2=(6, 2))
    batch = tuple(draw(13, x=(8, 4), y=(8, 2)).values())
    cuts: Any = {0: (0, "data"), 1: (0, "data")}
    make = lambda: Weights(DATA, values, cuts, fixed=("frozen", "average"))  # noqa: E731
    return TorchProgram(step, make, sgd, batch, DATA, cuts)


def sharded_moments(bug: str = "") -> TorchProgram:
    """Momentum that is cut over ranks (ZeRO 1) as buffers; weights are updated in parts and gathered."""

    def step(m: Any, optimizer: Any, x: Any, y: Any) -> Any:
        n = dist.get_world_size()
        m.zero_grad()
        loss = functional.mse_loss(predict(m, x), y)
        loss.backward()
        with torch.no_grad():
            parts = {}
            for name, p in m.named_parameters():
                whole = total(p.grad, None)  # wrong: gradients not divided
                parts[name] = own(
                    whole if bug == "gradients not divided" else whole / n, None, 0
                )  # wrong: gradients not divided
            square = torch.stack([(t**2).sum() for t in parts.values()]).sum()
            length = (
                square if bug == "clipped by the norm of a part" else total(square, None)
            ).sqrt()  # wrong: clipped by the norm of a part
            for name, p in m.named_parameters():
                change = parts[name] / (
                    1 + length
                )  # wrong: gradients not divided, clipped by the norm of a part
                moment = getattr(m, f"m_{name}")
                moment.mul_(0.9).add_(change)
                place = (dist.get_rank() + 1) % n if bug == "part of the next rank" else dist.get_rank()
                kept = p.chunk(n, 0)[place]  # wrong: part of the next rank
                decay = 0.1 * (n if bug == "decay by ranks" else 1)
                new = kept - 0.1 * (moment + decay * kept)  # wrong: decay by ranks, part of the next rank
                p.copy_(joined(new, None, 0))
        return total(loss, None) / n

    shapes: Any = {"w1": (4, 8), "w2": (8, 2)}
    values = draw(14, **shapes) | {f"m_{k}": t for k, t in draw(15, **shapes).items()}
    batch = tuple(draw(16, x=(8, 4), y=(8, 2)).values())
    cuts: Any = {0: (0, "data"), 1: (0, "data"), "m_w1": (0, "data"), "m_w2": (0, "data")}
    make = lambda: Weights(DATA, values, cuts, fixed=("m_w1", "m_w2"))  # noqa: E731
    return TorchProgram(step, make, no_optimizer, batch, DATA, cuts)


def sharded_weights(bug: str = "") -> TorchProgram:
    """Weights that are gathered where they are used (ZeRO 3)."""

    def step(m: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        gather = GatherAlone if bug == "gradients of a rank alone" else Gather
        w1, w2 = (
            gather.apply(p, m.group("data"), 0) for p in (m.w1, m.w2)
        )  # wrong: gradients of a rank alone
        penalty = (m.w1**2).sum() if bug == "penalty of parts" else (w1**2).sum()  # wrong: penalty of parts
        loss = functional.mse_loss(torch.tanh(x @ w1) @ w2, y) + 0.1 * penalty  # wrong: penalty of parts
        loss.backward()  # wrong: gradients of a rank alone
        for p in m.parameters():
            p.grad /= 1 if bug == "gradients not divided" else m.size("data")  # wrong: gradients not divided
        optimizer.step()
        return total(loss, None) / size_of(None)

    values = draw(17, w1=(4, 8), w2=(8, 2))
    batch = tuple(draw(18, x=(8, 4), y=(8, 2)).values())
    cuts: Any = {0: (0, "data"), 1: (0, "data"), "w1": (0, "data"), "w2": (0, "data")}
    return TorchProgram(step, lambda: Weights(DATA, values, cuts), sgd, batch, DATA, cuts)


STEPS = (
    Right(
        "data parallel",
        data_parallel,
        (
            Bug("sum of means", "mean versus sum", "w? optimizer.*"),
            Bug("sum over the local batch", "mean versus sum", "*"),
            Bug("clipped before the mean", "clipping norm", "w? optimizer.*"),
            Bug("rate times ranks", "mean versus sum", "w?"),
            Bug("loss of rank 0", "mean versus sum", "loss"),
        ),
    ),
    Right(
        "unequal labels",
        unequal_labels,
        (
            Bug("mean of local means", "unequal numbers of labels", "*"),
            Bug("padding of each rank counts", "unequal numbers of labels", "*"),
            Bug("divided by ranks too", "unequal numbers of labels", "w?"),
        ),
    ),
    Right(
        "accumulation",
        accumulation,
        (
            Bug("micro batches of a rank", "accumulation and loss scale", "*"),
            Bug("scale times ranks", "accumulation and loss scale", "w?"),
            Bug("sums in each micro batch", "accumulation and loss scale", "w?"),
        ),
    ),
    Right(
        "batch norm",
        batch_norm,
        (
            Bug("local backward of statistics", "batch norm", "w1"),
            Bug("variance about the local mean", "batch norm", "w? g var loss"),
            Bug("unbiased by local rows", "batch norm", "var"),
        ),
    ),
    Right(
        "contrastive",
        contrastive,
        (
            Bug("labels from 0", "unequal numbers of labels", "*"),
            Bug("gathered without gradients", "sums in both passes", "w?"),
        ),
    ),
    Right(
        "averages",
        teacher,
        (
            Bug("decay before the sum", "weight decay on shards", "w? average"),
            Bug("average by ranks", "frozen and unused weights", "average"),
            Bug("frozen weights averaged wrongly", "frozen and unused weights", "frozen"),
        ),
    ),
    Right(
        "sharded moments",
        sharded_moments,
        (
            Bug("gradients not divided", "sharded optimiser", "w? m_*"),
            Bug("clipped by the norm of a part", "clipping norm", "w? m_*"),
            Bug("part of the next rank", "sharded optimiser", "w?"),
            Bug("decay by ranks", "weight decay on shards", "w?"),
        ),
    ),
    Right(
        "sharded weights",
        sharded_weights,
        (
            Bug("gradients of a rank alone", "sharded optimiser", "w?"),
            Bug("penalty of parts", "weight decay on shards", "w1 loss"),
            Bug("gradients not divided", "sharded optimiser", "w?"),
        ),
    ),
)
