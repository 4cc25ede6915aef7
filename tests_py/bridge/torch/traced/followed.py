"""Steps that do more than call plain ops, and the verdict on each: a table of docs/bridge_torch.md.

``python -m tests_py.bridge.torch.traced.followed`` writes it anew.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

from popsr.bridge.torch import trace_step  # noqa: E402
from popsr.errors import UnsupportedError  # noqa: E402
from tests_py import ROOT  # noqa: E402
from tests_py.bridge.page_table import PageTable  # noqa: E402

__all__ = ["ON_PAGE", "table"]

ON_PAGE = PageTable(ROOT / "docs/bridge_torch.md", "followed and refused")
WORLD = 2
CONSTANT = torch.zeros(4)


class Model(nn.Module):
    """A layer, a table, a flat buffer and a view of it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lin = nn.Linear(4, 4)
        self.register_buffer("out", torch.zeros(4))
        self.register_buffer("table", torch.zeros(WORLD, 4))
        self.register_buffer("flat", torch.zeros(16))
        self.register_buffer("part", self.flat[:4])
        self.plain, self.calls, self.generator = torch.zeros(4), 0, torch.Generator().manual_seed(1)


class Columns(Model):
    """With a column of the flat buffer, too."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("wide", self.flat.view(4, 4)[:, 0])


class Hooked(Model):
    """A layer whose gradients a hook averages."""

    def __init__(self) -> None:
        super().__init__()
        for p in self.lin.parameters():
            p.register_post_accumulate_grad_hook(lambda p: dist.all_reduce(p.grad, dist.ReduceOp.AVG))


def apart() -> Any:
    torch.manual_seed(dist.get_rank())
    return nn.Linear(4, 4)


def rank() -> int:
    return dist.get_rank()


def _early(m: Any, x: Any) -> None:
    t = x[0].clone()
    work = dist.all_reduce(t, async_op=True)
    m.out.copy_(t)
    work.wait()


def _awaited(m: Any, x: Any) -> None:
    t = x[0].clone()
    dist.all_reduce(t, async_op=True).wait()
    m.out.copy_(t)


def _counted(m: Any, x: Any) -> None:
    m.calls += 1


LOG: list[float] = []


def _logged(m: Any, x: Any) -> None:
    LOG.append(x.sum().item())


def _counted_by_log(m: Any, x: Any) -> None:
    LOG.append(x.sum().item())
    if len(LOG) % 100 == 0:
        m.out.copy_(x[0])


def _kept(m: Any, x: Any) -> None:
    m.out.copy_(m.plain)
    m.plain = x[0].clone()


def _toggled(m: Any, x: Any) -> None:
    m.out.add_(1 if m.training else 2)
    m.train(not m.training)


def _drawn(m: Any, generator: Any) -> None:
    m.out.copy_(torch.rand(4, generator=generator))


def _trained(m: Any, x: Any) -> None:
    with torch.enable_grad():
        m.zero_grad()
        m.lin(x).sum().backward()
    m.lin.weight -= m.lin.weight.grad


def _accumulated(m: Any, x: Any) -> None:
    with torch.enable_grad():
        m.lin(x).sum().backward()
    for p in m.lin.parameters():
        dist.all_reduce(p.grad)


# Rows: a text, the state that shows it, the step, and the model.
ROWS: list[tuple[str, str, Callable[[Any, Any], Any], Callable[[], Any]]] = [
    (
        "a write at the rank's place: `table[rank] = 1`, `split`, `out=`",
        "table",
        lambda m, x: m.table.__setitem__(rank(), 1.0),
        Model,
    ),
    (
        "a number that differs between ranks, by its bits: `0.0` and `-0.0`",
        "out",
        lambda m, x: m.out.mul_(-0.0 if rank() else 0.0),
        Model,
    ),
    ("numbers of two kinds: `2` and `2.0`", "out", lambda m, x: m.out.mul_(2 if rank() else 2.0), Model),
    (
        "ops that only some ranks run, other axes or types on some",
        "out",
        lambda m, x: m.out.add_(1) if rank() else None,
        Model,
    ),
    (
        "collectives or random numbers of only some ranks",
        "out",
        lambda m, x: dist.all_reduce(m.out) if rank() else None,
        Model,
    ),
    (
        "a state in the memory of another: a part of a flat buffer",
        "part",
        lambda m, x: m.flat.copy_(x.reshape(-1)[:16]),
        Model,
    ),
    ("the same, where it is not contiguous", "wide", lambda m, x: m.flat.copy_(x.reshape(-1)[:16]), Columns),
    ("`p.data = tensor`", "lin.bias", lambda m, x: setattr(m.lin.bias, "data", x[0].clone()), Model),
    ("a buffer that is assigned anew", "out", lambda m, x: setattr(m, "out", x[0] * 1), Model),
    (
        "memory that nothing has written: `torch.empty`",
        "out",
        lambda m, x: m.out.copy_(torch.empty(4)),
        Model,
    ),
    ("the same, written before it is read", "out", lambda m, x: m.out.copy_(torch.empty(4).fill_(1)), Model),
    ("`async_op=True`, read before `wait()`", "out", _early, Model),
    ("`async_op=True`, read after `wait()`", "out", _awaited, Model),
    (
        "a generator with one seed: `generator=`",
        "out",
        lambda m, x: _drawn(m, torch.Generator().manual_seed(1)),
        Model,
    ),
    (
        "a generator of the rank's seed",
        "out",
        lambda m, x: _drawn(m, torch.Generator().manual_seed(rank())),
        Model,
    ),
    ("a generator that the model keeps", "out", lambda m, x: _drawn(m, m.generator), Model),
    ("torch's own generator", "out", lambda m, x: m.out.copy_(torch.rand(4)), Model),
    (
        "its seed: `torch.initial_seed()`",
        "out",
        lambda m, x: m.out.fill_(float(torch.initial_seed() % 7)),
        Model,
    ),
    (
        "`RANK`, `LOCAL_RANK`, `WORLD_SIZE` of the environment",
        "out",
        lambda m, x: m.out.fill_(float(os.environ["RANK"])),
        Model,
    ),
    ("a count in Python that goes on", "out", _counted, Model),
    ("`train()` and `eval()` by turns", "out", _toggled, Model),
    ("a tensor kept in an attribute for the next step", "out", _kept, Model),
    ("gradients that the next step adds to", "lin.weight.grad", _accumulated, Model),
    ("a hook of a parameter that averages its gradient", "lin.weight", _trained, Hooked),
    ("weights that start apart, without groups or a broadcast", "weight", lambda m, x: None, apart),
    ("a write of a tensor from outside of the step", "out", lambda m, x: CONSTANT.add_(1), Model),
    (
        "a value of the data in Python: `if loss > 0`",
        "out",
        lambda m, x: m.out.add_(1) if x.sum() > 0 else None,
        Model,
    ),
    (
        "the same, in a loop of many, or as `float(loss)`",
        "out",
        lambda m, x: m.out.fill_(float(x.sum())),
        Model,
    ),
    ("a list that is only added to, such as `losses.append(loss.item())`", "out", _logged, Model),
    ("a list that is added to and read", "out", _counted_by_log, Model),
    ("time, process number, files, threads", "out", lambda m, x: m.out.fill_(float(time.time() > 0)), Model),
]


def outcome(path: str, body: Callable[[Any, Any], Any], model: Callable[[], Any]) -> str:
    """The verdict of ``trace_step`` and the proof on a step on two ranks with data of their own."""

    def step(m: Any, x: Any) -> None:
        with torch.no_grad():
            body(m, x)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            proof = trace_step(step, model, None, torch.ones(8, 4), replicas=WORLD).prove()
        except UnsupportedError:
            return "refused"
    value = proof.value(path)
    if value.undeclared:
        return "not ok: undeclared"
    return f"{'equal' if len(value.proved.blocks) == 1 else 'differs'}"


def table() -> str:
    """The rows for the page."""
    rows = [f"| {what} | {outcome(path, body, model)} |" for what, path, body, model in ROWS]
    return "\n".join(["| in a step | its state is |", "| --- | --- |", *rows])


if __name__ == "__main__":
    ON_PAGE.write(table())
