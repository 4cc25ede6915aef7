"""Training jobs whose guard makes steps once more, and faults of each phase; each function runs on every rank."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from popsr.errors import DriftError, Error
from popsr.guard.torch import guard
from tests_py.bridge.torch import gloo
from tests_py.guard.jobs import flip

__all__ = ["caught"]

AT = 4  # the step whose number makes the fault
# PyTorch runs hooks in the step of this class too from now on, which optimisers below call from theirs.
torch.optim.AdamW([torch.zeros(1)])


def caught(name: str, *args: Any) -> Any:
    """The result of a job, or its error with the fields of the replay."""
    try:
        return globals()[name](*args)
    except DriftError as error:
        drift, notes = error.drift, error.__notes__
    except Error as error:
        return type(error).__name__, str(error)
    replayed = drift.replayed
    if replayed is None:
        return "DriftError", str(drift), None
    assert str(replayed) in notes
    found = replayed.finding
    place = replayed.step, replayed.phase, found and found.name, found and found.element
    return "DriftError", place, replayed.others, str(replayed)


class Model(nn.Module):
    """Two layers with dropout between them, and a buffer."""

    scale: Any

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(8, 16)
        self.outer = nn.Linear(16, 4)
        self.register_buffer("scale", torch.ones(3, 5))
        self.spoil: Callable[[], None] = lambda: None

    def forward(self, x: Any) -> Any:
        self.spoil()
        return self.outer(nn.functional.dropout(self.inner(x).relu(), 0.25))


class Spoiled(torch.optim.AdamW):
    """An optimiser that runs a function of the test in its steps."""

    before: Callable[[], None] = staticmethod(lambda: None)
    after: Callable[[], None] = staticmethod(lambda: None)

    def step(self, closure: Any = None) -> Any:
        """A step between the functions."""
        self.before()
        result = super().step(closure)
        self.after()
        return result


def reduce(model: Any, besides: str = "") -> None:
    for name, parameter in model.named_parameters():
        if name != besides and parameter.grad is not None:
            dist.all_reduce(parameter.grad)


def batch(number: int) -> Any:
    torch.manual_seed(100 * number + dist.get_rank())
    return torch.randn(6, 8)


def mine(rank: int = 1) -> bool:
    return dist.get_rank() == rank


def fault(kind: str, again: bool = True, at: int = AT) -> Any:
    """A job of plain ranks with a fault at one step, which is in a replay too if ``again``."""
    model = Model()
    optimizer = Spoiled(model.parameters(), lr=0.01)
    seen = set()

    def step(number: int, x: Any) -> float:
        is_now = number == at and (again or number not in seen)
        seen.add(number)
        is_here = is_now and mine()

        def here(spoil: Callable[[], Any]) -> Callable[[], None]:
            return lambda: spoil() if is_here else None

        model.spoil = here(lambda: flip(model.scale, 7, 3) if kind == "forward" else None)
        state = optimizer.state
        of = model.outer.weight
        optimizer.after = here(lambda: flip(state[of]["exp_avg"], 11, 3) if kind == "update" else None)
        optimizer.before = lambda: reduce(model) if kind.startswith("own") else None
        if kind == "own update":
            optimizer.after = here(lambda: flip(of, 11, 3))
        optimizer.zero_grad()
        loss = model(x).square().sum()
        if kind == "backward":
            loss.register_hook(lambda _: here(lambda: flip(model.scale, 2, 5))())
        loss.backward()
        if not kind.startswith("own"):
            reduce(model, "outer.weight" if kind == "reduction" and is_now else "")
        if is_here and kind == "gradient":
            flip(of.grad, 5, 20)
        if is_here and kind == "missing":
            of.grad = None
        if is_now and kind == "unreduced":
            optimizer.zero_grad()
            model(x).square().sum().backward()
        optimizer.step()
        if is_here and kind == "end":
            flip(of, 11, 3)
        return float(loss)

    with guard(model, optimizer, every=3, bisect=True, timeout=60) as g:
        for number in range(1, 7):
            x = batch(number)
            g.run(step, number, x=x)
            x.zero_()  # loops write batches to one place
            if kind == "rate" and number == at and mine():
                optimizer.param_groups[0]["lr"] = 0.02
            if kind == "loop" and number == at and mine():
                flip(model.scale, 0, 1)
    return "agree"


def counted() -> Any:
    """Steps that a context counts, and those of a hook, of an optimiser whose step calls that of its base."""
    model = Model()
    optimizer = Spoiled(model.parameters(), lr=0.01)

    def step(number: int) -> None:
        optimizer.zero_grad()
        model(batch(number)).square().sum().backward()
        reduce(model)
        optimizer.step()

    with guard(model, optimizer, every=2, timeout=60) as g:
        for number in range(3):
            step(number)
    hook = guard(model, optimizer, every=2, timeout=60)
    optimizer.register_step_post_hook(hook)
    for number in range(3):
        step(number)
    return g.steps, hook.steps


def distributed(kind: str) -> Any:
    """A job under DistributedDataParallel, of one process group, with a scheduler in its step."""
    model = nn.parallel.DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    def step(number: int, x: Any) -> None:
        optimizer.zero_grad()
        model(x).square().sum().backward()
        if kind == "gradient" and number >= AT and mine():
            flip(model.module.outer.weight.grad, 5, 20)
        optimizer.step()
        scheduler.step()

    with guard(model, optimizer, every=3, bisect=[scheduler], timeout=60) as g:
        for number in range(1, 7):
            g.run(step, number, batch(number))
            if kind == "flip" and number == 6 and mine():
                flip(model.module.outer.weight, 11, 3)
        g.check()


def warned(bisect: bool) -> Any:
    """The bits of a job that goes on with a difference, with a replay in it and without one."""
    model = nn.parallel.DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    texts: list[str] = []

    def step(number: int, x: Any) -> None:
        model(x).square().sum().backward()
        if number == AT and mine():
            flip(model.module.outer.weight.grad, 5, 20)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=False)

    options: Any = {"bisect": [scheduler]} if bisect else {}
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        watch = guard(
            model,
            optimizer,
            every=3,
            on_drift="warn",
            timeout=60,
            log=lambda _, it: texts.append(str(it)),
            **options,
        )
        with watch as g:
            for number in range(1, 10):
                g.run(step, number, batch(number))
                torch.randn(3)
    end = gloo.states(model.module, optimizer), scheduler.state_dict(), torch.randn(2).tolist()
    return end, [str(each.message) for each in seen if "guard" in str(each.message)], texts


def sharded() -> Any:
    """FSDP2 with two copies of each shard."""
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "shard"))
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 6))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(number: int, x: Any) -> None:
        optimizer.zero_grad()
        model(x).square().sum().backward()
        if number == AT and mine(3):
            flip(model[2].weight.grad, 17, 20)
        optimizer.step()

    with guard(model, optimizer, every=3, bisect=True, timeout=60) as g:
        for number in range(1, 7):
            g.run(step, number, batch(number))


def raises(of: str) -> Any:
    """A step that raises when it is made once more: on all ranks, or on one."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    seen = set()

    def step(number: int, x: Any) -> None:
        if number in seen and (of == "all" or mine()):
            raise ValueError("no second time")
        seen.add(number)
        optimizer.zero_grad()
        model(x).square().sum().backward()
        if number != AT:
            reduce(model)
        optimizer.step()

    with guard(model, optimizer, every=3, bisect=True, timeout=5) as g:
        for number in range(1, 7):
            g.run(step, number, batch(number))


def wrong(what: str) -> Any:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if what == "bisect":
        guard(model, optimizer, bisect=3)
    if what == "state":
        guard(model, optimizer, bisect=[3])
    if what == "off":
        return guard(model, optimizer).run(lambda x: x + 1, 2)
    g = guard(model, optimizer, bisect=True, timeout=60)
    if what == "closed":
        g.run(optimizer.step)
    if what == "first":
        flip(model.scale, dist.get_rank(), 1)
    with g:
        if what == "inside":
            g.run(lambda: g.run(optimizer.step))
        if what == "iterator":
            g.run(lambda _: optimizer.step(), iter([1]))
        if what == "function":
            no_function: Any = 3
            g.run(no_function)
        if what == "copy":
            g.run(lambda _: optimizer.step(), dist.group.WORLD)
        if what == "changes":
            g.run(lambda: setattr(model, "scale", torch.full((2,), float(dist.get_rank()))))
            g.check()
        optimizer.step()
    return "agree"
