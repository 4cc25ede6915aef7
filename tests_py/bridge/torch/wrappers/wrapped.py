"""Steps of models in ``DistributedDataParallel``, each as one function that makes model, optimiser and step."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import popsr.bridge.torch as bridge
from popsr.errors import Error

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: E402, N817

from tests_py.bridge.torch import gloo  # noqa: E402

__all__ = [
    "ROWS",
    "Made",
    "Two",
    "batch_of",
    "loss",
    "outcome",
    "plain",
    "proved_outcome",
    "real_outcomes",
    "sgd",
    "updated",
]

Made = tuple[Any, Any, Callable[..., Any]]
"""A model, its optimiser, and a step of both and a batch."""


class Two(nn.Module):
    """Two layers, of which a forward pass uses one, the other or both."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x: Any, which: str = "ab") -> Any:
        return sum(getattr(self, name)(x).tanh() for name in which)

    def pair(self, x: Any) -> tuple[Any, Any]:
        return self.a(x), self.b(x)


class Counted(nn.Module):
    """A layer with a buffer that callers change."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x: Any) -> Any:
        return self.layer(x) + self.count


def sgd(model: Any) -> Any:
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)


def batch_of(rank: int) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(10 + rank)
    return torch.randn(3, 4, generator=generator), torch.randn(3, 4, generator=generator)


def loss(t: Any) -> Any:
    return (t * t).sum()


def updated(step: Callable[[Any, Any, Any], Any]) -> Callable[..., Any]:
    """A step that computes gradients by a function, with the rest of a step around it."""

    def whole(model: Any, optimizer: Any, x: Any, y: Any) -> None:
        optimizer.zero_grad()
        step(model, x, y)
        optimizer.step()

    return whole


OPTIONS = frozenset(inspect.signature(DDP).parameters)
"""Arguments of the wrapper in the installed version."""


def ddp(step: Callable[[Any, Any, Any], Any], module: Any = Two, **options: Any) -> Callable[[], Made]:
    """A row: a module in a wrapper with options, and what computes gradients."""

    def made() -> Made:
        model = DDP(module(), **options)
        return model, sgd(model), updated(step)

    return made


def plain(m: Any, x: Any, y: Any) -> None:
    loss(m(x)).backward()


def accumulated(m: Any, x: Any, y: Any) -> None:
    with m.no_sync():
        loss(m(y)).backward()
    loss(m(x)).backward()


def backward_outside(m: Any, x: Any, y: Any) -> None:
    loss(m(x)).backward()
    with m.no_sync():
        made = loss(m(y))
    made.backward()


def backward_inside(m: Any, x: Any, y: Any) -> None:
    made = loss(m(x))
    with m.no_sync():
        made.backward()


def only_no_sync(m: Any, x: Any, y: Any) -> None:
    with m.no_sync():
        loss(m(x)).backward()


def other_loss(m: Any, x: Any, y: Any) -> None:
    loss(m(x)).backward()
    loss(m.module(y)).backward()


def other_loss_first(m: Any, x: Any, y: Any) -> None:
    loss(m.module(y)).backward()
    loss(m(x)).backward()


def branches(m: Any, x: Any, y: Any) -> None:
    with m.no_sync():
        loss(m(y, "a")).backward()
    loss(m(x, "b")).backward()


def one_branch(m: Any, x: Any, y: Any) -> None:
    loss(m(x, "a")).backward()


def unused_output(m: Any, x: Any, y: Any) -> None:
    loss(m(x)[0]).backward()


def two_forwards(m: Any, x: Any, y: Any) -> None:
    (loss(m(x)) + loss(m(y))).backward()


def two_forwards_two_backwards(m: Any, x: Any, y: Any) -> None:
    first, second = loss(m(x)), loss(m(y))
    first.backward()
    second.backward()


def backward_twice(m: Any, x: Any, y: Any) -> None:
    made = loss(m(x))
    made.backward(retain_graph=True)
    made.backward()


def by_flag(m: Any, x: Any, y: Any) -> None:
    m.require_backward_grad_sync = False
    loss(m(x)).backward()
    m.require_backward_grad_sync = True


def evaluated_first(m: Any, x: Any, y: Any) -> None:
    with torch.no_grad():
        m(y)
    loss(m(x)).backward()


def evaluated_last(m: Any, x: Any, y: Any) -> None:
    loss(m(x)).backward()
    with torch.no_grad():
        m(y)


def grad_of_autograd(m: Any, x: Any, y: Any) -> None:
    ps = list(m.parameters())
    for p, grad in zip(ps, torch.autograd.grad(loss(m(x)), ps), strict=True):
        p.grad = grad


def forward_last(m: Any, x: Any, y: Any) -> None:
    """Its last forward pass lets the next backward pass reduce, of whatever loss."""
    loss(m.module(y)).backward()
    m(x)


def changed_before(m: Any, x: Any, y: Any) -> None:
    m.module.count.add_(x[0, :2].detach())
    loss(m(x)).backward()


def changed_between(m: Any, x: Any, y: Any) -> None:
    with m.no_sync():
        loss(m(x)).backward()
    m.module.count.add_(x[0, :2].detach())
    loss(m(y)).backward()


def changed_before_both(m: Any, x: Any, y: Any) -> None:
    m.module.count.add_(x[0, :2].detach())
    with m.no_sync():
        loss(m(x)).backward()
    loss(m(y)).backward()


def thawed() -> Made:
    module = Two()
    module.b.requires_grad_(False)
    model = DDP(module)
    module.b.requires_grad_(True)
    return model, sgd(model), updated(plain)


def frozen() -> Made:
    model = DDP(Two())
    model.module.b.requires_grad_(False)
    return model, sgd(model), updated(plain)


def frozen_but_found() -> Made:
    model = DDP(Two(), find_unused_parameters=True)
    model.module.b.requires_grad_(False)
    return model, sgd(model), updated(plain)


def ignored() -> Made:
    module = Two()
    DDP._set_params_and_buffers_to_ignore_for_model(module, ["a.weight"])
    model = DDP(module)
    return model, sgd(model), updated(plain)


def ignored_at_the_top() -> Made:
    """The name of a parameter of the wrapped module itself begins with a dot where DDP asks whether to reduce it."""
    module = nn.Linear(4, 2)
    DDP._set_params_and_buffers_to_ignore_for_model(module, ["weight"])
    model = DDP(module)
    return model, sgd(model), updated(plain)


def gan() -> Made:
    model = nn.ModuleDict({"one": DDP(nn.Linear(4, 4)), "two": DDP(nn.Linear(4, 1))})

    def step(m: Any, x: Any, y: Any) -> None:
        loss(m["two"](m["one"](x)) + m["two"](y)).backward()

    return model, sgd(model), updated(step)


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = DDP(nn.Linear(4, 4)), nn.Linear(4, 1)

    def forward(self, x: Any) -> Any:
        return self.head(self.inner(x))


def inside() -> Made:
    model = Inner()
    return model, sgd(model), updated(plain)


def seeded_apart() -> Made:
    torch.manual_seed(dist.get_rank())
    model = DDP(Two())
    return model, sgd(model), updated(plain)


def seeded_apart_and_ignored() -> Made:
    torch.manual_seed(dist.get_rank())
    return ignored()


def seeded_apart_and_thawed() -> Made:
    torch.manual_seed(dist.get_rank())
    return thawed()


def seeded_apart_by_hand() -> Made:
    torch.manual_seed(dist.get_rank())
    model = Two()
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    return model, sgd(model), updated(averaged)


def seeded_apart_without() -> Made:
    torch.manual_seed(dist.get_rank())
    model = Two()
    return model, sgd(model), updated(averaged)


def averaged(m: Any, x: Any, y: Any) -> None:
    loss(m(x)).backward()
    for p in m.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def moved_after() -> Made:
    model = DDP(Two())
    with torch.no_grad():
        model.module.a.weight += dist.get_rank()
    return model, sgd(model), updated(plain)


def alone() -> Made:
    groups = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
    model = DDP(Two(), process_group=groups[dist.get_rank()])
    return model, sgd(model), updated(plain)


def normed() -> Made:
    model = DDP(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    return model, sgd(model), updated(plain)


class Pair(Two):
    def forward(self, x: Any, which: str = "") -> Any:
        return self.pair(x)


ROWS: dict[str, Callable[[], Made]] = {
    "plain": ddp(plain),
    "accumulated": ddp(accumulated),
    "forward under no_sync, backward outside": ddp(backward_outside),
    "forward, then backward under no_sync": ddp(backward_inside),
    "only under no_sync": ddp(only_no_sync),
    "frozen at construction": thawed,
    "frozen afterwards": frozen,
    "frozen afterwards, unused ones found": frozen_but_found,
    "loss of the module afterwards": ddp(other_loss),
    "loss of the module before": ddp(other_loss_first),
    "branches, unused ones found": ddp(branches, find_unused_parameters=True),
    "branches": ddp(branches),
    "one branch, unused ones found": ddp(one_branch, find_unused_parameters=True),
    "one branch": ddp(one_branch),
    "unused output, unused ones found": ddp(unused_output, Pair, find_unused_parameters=True),
    "unused output": ddp(unused_output, Pair),
    "two forward passes": ddp(two_forwards),
    "two forward passes, unused ones found": ddp(two_forwards, find_unused_parameters=True),
    "two forward and backward passes": ddp(two_forwards_two_backwards),
    "two backward passes": ddp(backward_twice),
    "by its flag": ddp(by_flag),
    "evaluated first": ddp(evaluated_first),
    "evaluated last": ddp(evaluated_last),
    "gradients of autograd.grad": ddp(grad_of_autograd),
    "forward pass last": ddp(forward_last),
    "views of buckets": ddp(accumulated, gradient_as_bucket_view=True),
    "buffer changed before": ddp(changed_before, Counted),
    "buffer changed before, not sent": ddp(changed_before, Counted, broadcast_buffers=False),
    "buffer changed between": ddp(changed_between, Counted),
    "buffer changed before both": ddp(changed_before_both, Counted),
    "buffer, evaluated last": ddp(evaluated_last, Counted),
    "ignored": ignored,
    "ignored at the top": ignored_at_the_top,
    "two in a container": gan,
    "inside": inside,
    "seeded apart": seeded_apart,
    "seeded apart, one ignored": seeded_apart_and_ignored,
    "seeded apart, some frozen": seeded_apart_and_thawed,
    "seeded apart, sent by hand": seeded_apart_by_hand,
    "seeded apart, not sent": seeded_apart_without,
    "moved afterwards": moved_after,
    "groups of one": alone,
    "batch norm": normed,
}


def outcome(name: str, rows: dict[str, Callable[[], Made]]) -> dict[str, gloo.Bits] | str:
    """The states of this rank after three steps of a row; the error where one is raised."""
    torch.manual_seed(0)
    try:
        model, optimizer, step = rows[name]()
        for _ in range(3):
            step(model, optimizer, *batch_of(dist.get_rank()))
    except RuntimeError as error:
        return str(error)
    return gloo.states(model, optimizer)


def proved_outcome(row: Callable[[], Made], **options: Any) -> set[str] | str:
    """The states that a proof says may differ, or the error of popsr."""
    torch.manual_seed(0)
    last: list[Made] = []

    def model() -> Any:
        last[:] = [row()]
        return last[0][0]

    def step(*args: Any) -> Any:
        return last[0][2](*args)

    try:
        made = bridge.trace_step(step, model, lambda _: last[0][1], batch_of, replicas=2, **options)
    except Error as error:
        return f"{type(error).__name__}: {error}"
    proof = made.prove()
    assert (proof.verdict != "not ok") == (not proof.drifting and not proof.undeclared)
    return {each.path for each in (*proof.drifting, *proof.undeclared)}


def all_outcomes() -> dict[str, dict[str, gloo.Bits] | str]:
    return {name: outcome(name, ROWS) for name in ROWS}


def real_outcomes(function: Callable[[], Any] = all_outcomes) -> dict[str, set[str] | str]:
    """States of each row that differ between two ranks of gloo, or the error that they raise."""
    first, second = gloo.run(2, function)
    return {name: _differing(made, second[name]) for name, made in first.items()}


def _differing(first: Any, second: Any) -> set[str] | str:
    if isinstance(first, str):
        return first
    return {path for path in first if first[path] != second[path]}
