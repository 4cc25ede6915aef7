"""Steps with optimisers, schedulers, scalers and averages, which popsr and processes of gloo run."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.optim import lr_scheduler as schedulers  # noqa: E402
from torch.optim import swa_utils  # noqa: E402

from tests_py.bridge.torch import gloo  # noqa: E402
from tests_py.bridge.torch.claims import fixed  # noqa: E402

__all__ = ["CASES", "DRIFTING", "OPTIMISERS", "WORLD", "Case", "Net", "average", "batch_of", "run_rank"]

WORLD = 2
optim: Any = torch.optim


@dataclass
class Case:
    """A step with what it is called with.

    Attributes:
        step: the function.
        model: makes the module.
        optimizer: makes the optimiser of a module.
        around: the tensors outside of the model that are states, by path; called after the steps.
        overflows: True if gradients of the third step are not finite.
    """

    step: Callable[..., Any]
    optimizer: Callable[[Any], Any]
    around: Callable[[], dict[str, Any]] = field(default=dict)
    model: Callable[[], Any] = lambda: Net()
    overflows: bool = True


class Net(nn.Module):
    """Two layers without a generator."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.out = fixed(nn.Linear(4, 4)), fixed(nn.Linear(4, 2))

    def forward(self, x: Any) -> Any:
        return self.out(torch.relu(self.hidden(x)))


def batch_of(rank: int, time: int, *, overflows: bool) -> Any:
    """Data of a rank at one step; in the third step the gradients of the second rank alone are not finite."""
    made = torch.linspace(-1, 1 + rank + time / 4, 12).view(3, 4)
    return made * 1e30 if overflows and rank == 1 and time == 2 else made


def average(model: Any) -> None:
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad, dist.ReduceOp.AVG)


def trained(m: Any, o: Any, x: Any) -> None:
    o.zero_grad()
    m(x).square().mean().backward()
    average(m)
    o.step()


def groups(make: Callable[..., Any], **options: Any) -> Callable[[Any], Any]:
    """An optimiser of weights with decay and of biases without."""

    def made(m: Any) -> Any:
        weights = [p for p in m.parameters() if p.ndim > 1]
        rest = [p for p in m.parameters() if p.ndim < 2]
        return make(
            [{"params": weights, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], **options
        )

    return made


def of_all(make: Callable[..., Any], **options: Any) -> Callable[[Any], Any]:
    return lambda m: make(m.parameters(), **options)


FORMS: dict[str, dict[str, list[dict[str, Any]]]] = {
    "AdamW": {"": [{}, {"amsgrad": True}, {"maximize": True}, {"lr": torch.tensor(0.01)}], "fused": [{}]},
    "Adam": {"": [{"amsgrad": True, "weight_decay": 0.1}], "fused": [{}]},
    "SGD": {"": [{"lr": 0.1, "momentum": 0.9, "nesterov": True}], "fused": [{"lr": 0.1, "momentum": 0.9}]},
    "RMSprop": {"": [{"centered": True, "momentum": 0.9}]},
    "Adagrad": {"": [{"lr_decay": 0.1}], "fused": [{}]},
    "Adamax": {"": [{}]},
    "NAdam": {"": [{}, {"decoupled_weight_decay": True, "weight_decay": 0.1}]},
    "RAdam": {"": [{}]},
    "ASGD": {"": [{"t0": 2.0}]},
    "Adadelta": {"": [{"lr": 1.0}]},
    "Rprop": {"": [{}]},
    "Adafactor": {"": [{}]},
}
OPTIMISERS: dict[str, Case] = {
    f"{name} {options} {form}": Case(
        trained, of_all(getattr(optim, name), **options, **form), overflows=False
    )
    for name, kinds in FORMS.items()
    for kind, rows in kinds.items()
    for options in rows
    for form in (
        [{"fused": True}]
        if kind
        else [
            {"foreach": each} for each in (False, True) if not (each and "lr" in options and name == "AdamW")
        ]
    )
}


def scheduled(make: Callable[[Any], Any], optimizer: Callable[[Any], Any]) -> Case:
    """A scheduler steps after each step of the optimiser."""

    def with_scheduler(m: Any) -> Any:
        made = optimizer(m)
        made.scheduler = make(made)
        return made

    def step(m: Any, o: Any, x: Any) -> Any:
        trained(m, o, x)
        o.scheduler.step()
        return o.scheduler.get_last_lr()[0]

    return Case(step, with_scheduler)


def scheduled_where(holds: Callable[[Any], Any]) -> Case:
    """A scheduler steps where something holds of the data of all ranks."""

    def step(m: Any, o: Any, x: Any) -> None:
        trained(m, o, x)
        seen = x.sum()
        dist.all_reduce(seen)
        if holds(seen):
            o.scheduler.step()

    made = scheduled(lambda o: schedulers.ExponentialLR(o, 0.5), of_all(optim.SGD, lr=0.1))
    return Case(step, made.optimizer)


def rated(rate: Callable[[], float]) -> Case:
    """The step sets the rate anew."""

    def step(m: Any, o: Any, x: Any) -> None:
        for group in o.param_groups:
            group["lr"], group["betas"] = rate(), (0.8, 0.9)
        trained(m, o, x)

    return Case(step, groups(optim.AdamW), overflows=False)


def scaled(
    optimizer: Callable[[Any], Any], *, before: bool = False, clips: bool = False, casts: bool = False
) -> Case:
    """Scaled gradients; the check for infinities stands before or after they are averaged."""
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)

    def step(m: Any, o: Any, x: Any) -> Any:
        o.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=casts):
            loss = m(x).square().mean()
        scaler.scale(loss).backward()
        if before:
            scaler.unscale_(o)
        average(m)
        if clips:
            scaler.unscale_(o)
            nn.utils.clip_grad_norm_(m.parameters(), 0.5)
        scaler.step(o)
        scaler.update()
        return loss.item(), scaler.get_scale()

    return Case(
        step,
        optimizer,
        lambda: {"scaler.scale": scaler._scale, "scaler.growth_tracker": scaler._growth_tracker},
    )


def averaged(make: Callable[[Any], Any]) -> Case:
    """Another module has averages of the weights."""
    ema = make(Net())

    def step(m: Any, o: Any, x: Any) -> None:
        trained(m, o, x)
        ema.update_parameters(m)

    return Case(step, of_all(optim.AdamW), lambda: {f"ema.{n}": t for n, t in ema.state_dict().items()})


def averaged_by_hand() -> Case:
    other = copy.deepcopy(Net())

    def step(m: Any, o: Any, x: Any) -> None:
        trained(m, o, x)
        with torch.no_grad():
            for a, b in zip(other.parameters(), m.parameters(), strict=True):
                a.lerp_(b, 0.1)

    return Case(step, of_all(optim.AdamW), lambda: {f"other.{n}": t for n, t in other.state_dict().items()})


def averaged_in_dictionary() -> Case:
    means = {name: p.detach().clone() for name, p in Net().named_parameters()}

    def step(m: Any, o: Any, x: Any) -> None:
        trained(m, o, x)
        with torch.no_grad():
            for name, p in m.named_parameters():
                means[name].mul_(0.9).add_(p, alpha=0.1)

    return Case(step, of_all(optim.AdamW), lambda: {f"means[{n!r}]": t for n, t in means.items()})


class Holder:
    """An object of the user."""

    averages: list[Any]


def averaged_in_object(is_kept: bool) -> Case:
    """Averages in a list of an object, which the step names, or which the optimiser keeps."""
    made: list[Any] = []

    def kept(m: Any) -> Any:
        holder = Holder()
        holder.averages = [p.detach().clone() for p in m.parameters()]
        found = optim.AdamW(m.parameters())
        found.holder = holder
        made.append(holder)
        return found

    def of_optimiser(m: Any, o: Any, x: Any) -> None:
        trained(m, o, x)
        with torch.no_grad():
            for mean, p in zip(o.holder.averages, m.parameters(), strict=True):
                mean.lerp_(p, 0.1)

    shared = Holder()
    shared.averages = [p.detach().clone() for p in Net().parameters()]

    def of_name(m: Any, o: Any, x: Any) -> None:
        trained(m, o, x)
        with torch.no_grad():
            for mean, p in zip(shared.averages, m.parameters(), strict=True):
                mean.lerp_(p, 0.1)

    if not is_kept:
        named = lambda: {f"shared.averages[{k}]": t for k, t in enumerate(shared.averages)}  # noqa: E731
        return Case(of_name, of_all(optim.AdamW), named)
    return Case(
        of_optimiser,
        kept,
        lambda: {f"optimizer.holder.averages[{k}]": t for k, t in enumerate(made[-1].averages)},
    )


def averaged_on_one_rank() -> Case:
    means = [p.detach().clone() for p in Net().parameters()]

    def step(m: Any, o: Any, x: Any) -> None:
        trained(m, o, x)
        with torch.no_grad():
            for mean, p in zip(means, m.parameters(), strict=True) if dist.get_rank() == 0 else ():
                mean.lerp_(p, 0.1)

    return Case(step, of_all(optim.AdamW), lambda: {f"means[{k}]": t for k, t in enumerate(means)})


def scheduled_on_one_rank() -> Case:
    def with_scheduler(m: Any) -> Any:
        made = optim.SGD(m.parameters(), lr=0.1)
        made.scheduler = schedulers.ExponentialLR(made, 0.5)
        return made

    def step(m: Any, o: Any, x: Any) -> None:
        trained(m, o, x)
        if dist.get_rank() == 1:
            o.scheduler.step()

    return Case(step, with_scheduler)


def skipping(reduces: bool) -> Case:
    """A step is left out where the loss is not finite, on this rank or on some."""

    def step(m: Any, o: Any, x: Any) -> Any:
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        average(m)
        seen = loss.detach().clone()
        if reduces:
            dist.all_reduce(seen)
        if torch.isfinite(seen):
            o.step()
        return loss.item()

    return Case(step, of_all(optim.AdamW))


def left_early(m: Any, o: Any, x: Any) -> Any:
    """Nothing is reduced of a step whose loss is not finite somewhere."""
    o.zero_grad()
    loss = m(x).square().mean()
    seen = loss.detach().clone()
    dist.all_reduce(seen)
    if seen.item() != seen.item() or seen.isinf():
        return None
    loss.backward()
    average(m)
    o.step()
    return loss.item()


def logged() -> Case:
    losses: list[float] = []

    def step(m: Any, o: Any, x: Any) -> Any:
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        average(m)
        norm = nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        nn.utils.clip_grad_value_(m.parameters(), 0.5)
        o.step()
        losses.append(loss.item())
        return f"{loss.item():.4f} {norm.item()}"

    return Case(step, of_all(optim.AdamW))


def clipped_by_number(m: Any, o: Any, x: Any) -> None:
    """The factor of a clip is a number of Python."""
    o.zero_grad()
    m(x).square().mean().backward()
    average(m)
    norm = nn.utils.get_total_norm([p.grad for p in m.parameters()])
    factor = min(1.0, 0.1 / (norm.item() + 1e-6))
    for p in m.parameters():
        p.grad.mul_(factor)
    o.step()


CASES: dict[str, Callable[[], Case]] = {
    "groups": lambda: Case(trained, groups(optim.AdamW)),
    "scheduler on one rank": scheduled_on_one_rank,
    "ema on one rank": averaged_on_one_rank,
    "LambdaLR": lambda: scheduled(lambda o: schedulers.LambdaLR(o, lambda e: 0.5**e), of_all(optim.AdamW)),
    "OneCycleLR": lambda: scheduled(
        lambda o: schedulers.OneCycleLR(o, 0.1, total_steps=20), of_all(optim.AdamW, fused=True)
    ),
    "SequentialLR": lambda: scheduled(
        lambda o: schedulers.SequentialLR(
            o, [schedulers.LinearLR(o), schedulers.CosineAnnealingLR(o, 5)], [2]
        ),
        groups(optim.SGD, lr=0.1, momentum=0.9),
    ),
    "scheduler of each rank": lambda: scheduled(
        lambda o: schedulers.LambdaLR(o, lambda e: 1 / (1 + dist.get_rank() * e)), of_all(optim.SGD, lr=0.1)
    ),
    "scheduler of all data": lambda: scheduled_where(lambda s: s > 3),
    "rate set anew": lambda: rated(lambda: 0.05),
    "rate of each rank": lambda: rated(lambda: 0.05 * (1 + dist.get_rank())),
    "scaler": lambda: scaled(of_all(optim.AdamW)),
    "scaler, fused": lambda: scaled(of_all(optim.AdamW, fused=True)),
    "scaler, clipped": lambda: scaled(of_all(optim.SGD, lr=0.1, momentum=0.9), clips=True),
    "scaler, local check": lambda: scaled(of_all(optim.AdamW), before=True),
    "scaler, autocast": lambda: scaled(of_all(optim.AdamW), casts=True),
    "AveragedModel": lambda: averaged(swa_utils.AveragedModel),
    "AveragedModel, ema": lambda: averaged(
        lambda m: swa_utils.AveragedModel(m, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))
    ),
    "ema by hand": averaged_by_hand,
    "ema in a dictionary": averaged_in_dictionary,
    "ema of the optimiser": lambda: averaged_in_object(True),
    "skipped on this rank": lambda: skipping(False),
    "ema of an object": lambda: averaged_in_object(False),
    "skipped on all": lambda: skipping(True),
    "left early": lambda: Case(left_early, of_all(optim.SGD, lr=0.1)),
    "logged": logged,
    "clipped by a number": lambda: Case(clipped_by_number, of_all(optim.AdamW)),
    "RAdam": lambda: Case(trained, groups(optim.RAdam)),
    "ASGD": lambda: Case(trained, groups(optim.ASGD, t0=2.0)),
    "Adafactor": lambda: Case(trained, groups(optim.Adafactor)),
}
DRIFTING = (
    "scheduler of each rank",
    "scheduler on one rank",
    "rate of each rank",
    "scaler, local check",
    "ema on one rank",
    "skipped on this rank",
)
"""Cases in which real ranks go apart."""


def run_rank(name: str, times: int) -> list[dict[str, gloo.Bits]]:
    """Some steps on this rank of a job; the states after each."""
    case = OPTIMISERS[name] if name in OPTIMISERS else CASES[name]()
    model = case.model()
    optimizer = case.optimizer(model)
    found = []
    for time in range(times):
        case.step(model, optimizer, batch_of(dist.get_rank(), time, overflows=case.overflows))
        around = {path: gloo.bits(t) for path, t in case.around().items()}
        found.append(gloo.states(model, optimizer) | around)
    return found
