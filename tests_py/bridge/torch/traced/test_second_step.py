"""Changes from one step to the next outside of the states: as torch has it after three steps, or refused."""

from __future__ import annotations

import functools
import os
import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import popsr.bridge.torch as bridge
from popsr.errors import UnsupportedError
from tests_py.bridge.torch.claims import check_claims, fixed, rows_of

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.distributed._functional_collectives as functional  # noqa: E402
from torch import nn  # noqa: E402


class Layer(nn.Module):
    """A layer, a buffer, and attributes of Python."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        self.lin = fixed(nn.Linear(4, 4))
        self.register_buffer("out", torch.zeros(4))
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x: Any) -> Any:
        return self.lin(x)


class Rotary(Layer):
    """Keeps positions, which its first call makes."""

    cache: Any

    def forward(self, x: Any) -> Any:
        if self.cache is None or self.cache.shape[0] < x.shape[0]:
            places = torch.arange(x.shape[0], device=x.device).float()
            angles = torch.outer(places, 1.0 / (10 ** (torch.arange(0, 4, 2).float() / 4)))
            self.cache = torch.cat([angles.cos(), angles.sin()], -1)
        return self.lin(x * self.cache[: x.shape[0]].to(x.dtype))


class LazyBuffer(Rotary):
    """Keeps them in a buffer that is None before."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", None, persistent=False)


class Cached(Layer):
    """Keeps what a function of the first input gives, in a dictionary."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        super().__init__(kept={}, make=make)

    def forward(self, x: Any) -> Any:
        if x.shape not in self.kept:
            self.kept[x.shape] = self.make(x)
        return self.lin(x + self.kept[x.shape])


@functools.lru_cache
def positions(count: int) -> Any:
    return torch.arange(float(count)).cos()


class Global(Layer):
    """Keeps positions outside of the model."""

    def forward(self, x: Any) -> Any:
        return self.lin(x * positions(4))


class Last(Layer):
    """Keeps its last result, which nothing reads."""

    def forward(self, x: Any) -> Any:
        self.last = self.lin(x)
        return self.last


class Counted(Layer):
    """Counts its calls, which nothing reads."""

    def forward(self, x: Any) -> Any:
        self.calls = getattr(self, "calls", 0) + 1
        return self.lin(x)


class Normed(Layer):
    """With statistics and their counter."""

    def __init__(self) -> None:
        super().__init__(norm=fixed(nn.BatchNorm1d(4)))

    def forward(self, x: Any) -> Any:
        return self.norm(self.lin(x))


def parametrized(change: Callable[[Any], Any]) -> Callable[[], Any]:
    def make() -> Any:
        made = Layer()
        made.lin = change(made.lin)
        for buffer in made.lin.buffers():
            buffer.data = torch.full_like(buffer, 0.5)
        return made

    return make


def warmed() -> Any:
    made = Rotary(cache=None)
    made(torch.ones(8, 4))
    return made


def average(model: Any) -> None:
    for p in model.parameters():
        if p.grad is not None:
            p.grad = functional.all_reduce(p.grad, "avg", dist.group.WORLD)


def trained(m: Any, o: Any, x: Any) -> None:
    o.zero_grad()
    m(x).square().mean().backward()
    average(m)
    o.step()


def training(before: Callable[[Any, Any], Any], after: Callable[[Any, Any], Any]) -> Callable[..., None]:
    """A step whose gradients are dropped at one of two places."""

    def step(m: Any, o: Any, x: Any) -> None:
        before(m, o)
        for part in x.chunk(2):
            m(part).square().mean().backward()
        average(m)
        o.step()
        after(m, o)

    return step


def nothing(m: Any, o: Any) -> None:
    pass


ZEROED: dict[str, Callable[..., None]] = {
    "dropped first": training(lambda m, o: o.zero_grad(), nothing),
    "zeros first": training(lambda m, o: o.zero_grad(set_to_none=False), nothing),
    "zeros of the model first": training(lambda m, o: m.zero_grad(set_to_none=False), nothing),
    "dropped last": training(nothing, lambda m, o: o.zero_grad()),
    "zeros last": training(nothing, lambda m, o: o.zero_grad(set_to_none=False)),
    "accumulated over steps": training(nothing, nothing),
}
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda m: torch.optim.SGD(m.parameters(), lr=0.01),
    "momentum": lambda m: torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.9),
    "adamw": lambda m: torch.optim.AdamW(m.parameters(), lr=0.01, eps=1e-3),
}


@pytest.mark.share(4)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", ZEROED)
def test_gradients(name: str, optimizer: str) -> None:
    made = check_claims(ZEROED[name], Layer, OPTIMIZERS[optimizer])
    kept = name in ("zeros first", "zeros of the model first", "zeros last", "accumulated over steps")
    assert ("lin.weight.grad" in made.run()) is kept
    assert made.prove().ok


def same_gradient(m: Any, o: Any, x: Any) -> None:
    o.zero_grad()
    m(x).sum().backward()
    kept = m.lin.bias.grad
    m(x).sum().backward()
    with torch.no_grad():
        m.out.copy_(kept)


def clipped(m: Any, o: Any, x: Any) -> None:
    o.zero_grad()
    m(x).square().mean().backward()
    average(m)
    nn.utils.clip_grad_norm_(m.parameters(), 0.5)
    o.step()


def from_outside(m: Any, o: Any, x: Any) -> None:
    o.zero_grad()
    m(x).square().mean().backward()
    for p in m.others:
        if p.grad is not None:
            p.grad.add_(x.sum())
    o.step()


def with_own() -> Any:
    made = Layer()
    made.others = list(made.parameters())
    return made


FOLLOWED: dict[str, tuple[Callable[[], Any], Callable[..., None]]] = {
    "positions": (lambda: Rotary(cache=None), trained),
    "positions after a first call": (warmed, trained),
    "mask in a dictionary": (lambda: Cached(lambda x: torch.triu(torch.ones(x.shape), 1)), trained),
    "kept and never read": (Last, trained),
    "batch norm": (Normed, trained),
    "spectral norm": (parametrized(nn.utils.parametrizations.spectral_norm), trained),
    "gradient that a second pass adds to": (Layer, same_gradient),
    "clipped": (Layer, clipped),
    "parameters from outside": (with_own, from_outside),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_followed(name: str) -> None:
    model, step = FOLLOWED[name]
    check_claims(step, model, OPTIMIZERS["sgd"])


def counted(m: Any, o: Any, x: Any) -> None:
    m.calls += 1
    with torch.no_grad():
        if m.calls > 1:
            m.out.copy_(x[0])


def counted_to_three(m: Any, o: Any, x: Any) -> None:
    m.calls += 1
    with torch.no_grad():
        if m.calls == 3:
            m.out.copy_(x[0])


def listed(m: Any, o: Any, x: Any) -> None:
    m.calls["list"].append(len(m.calls["list"]))


STEPS = 0


def _next() -> int:
    global STEPS
    STEPS += 1
    return STEPS


def counted_outside(m: Any, o: Any, x: Any) -> None:
    with torch.no_grad():
        if _next() % 100 == 0:
            m.out.copy_(x[0])


def toggled(m: Any, o: Any, x: Any) -> None:
    with torch.no_grad():
        if m.training:
            m.eval()
        else:
            m.out.copy_(x[0])
            m.train()


def attribute(m: Any, o: Any, x: Any) -> None:
    with torch.no_grad():
        m.out.copy_(m.kept)
    m.kept = x[0].clone()


def scaled(m: Any, o: Any, x: Any) -> None:
    with torch.no_grad():
        m.out.add_(x[0], alpha=m.scale)
    m.scale *= 2


def signed(m: Any, o: Any, x: Any) -> None:
    m.sign = -m.sign
    with torch.no_grad():
        m.out.fill_(m.sign)


def typed(m: Any, o: Any, x: Any) -> None:
    with torch.no_grad():
        m.out.add_(x[0], alpha=m.scale)
    m.scale = int(m.scale)


def constant(m: Any, o: Any, x: Any) -> None:
    with torch.no_grad():
        m.out.copy_(torch.tensor([m.scale] * 4))
    m.scale = -m.scale


def drawn(m: Any, o: Any, x: Any) -> None:
    with torch.no_grad():
        m.out.fill_(random.random())


class Counter:
    """A number that a function counts up."""

    n = 0

    def up(self) -> None:
        self.n += 1


def _counting() -> Callable[[], None]:
    counter = Counter()

    def count() -> None:
        counter.n += 1

    return count


HOOKS = [_counting()]


def counted_in_a_list(m: Any, o: Any, x: Any) -> None:
    trained(m, o, x)
    HOOKS[0]()


def _behind(count: Callable[[], None]) -> Callable[[], None]:
    return lambda: count()


def _counted_by(count: Callable[[], None]) -> Callable[..., None]:
    """A step that holds a function."""

    def step(m: Any, o: Any, x: Any) -> None:
        trained(m, o, x)
        count()

    return step


def scheduled(m: Any, o: Any, x: Any) -> None:
    trained(m, o, x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        m.scheduler = torch.optim.lr_scheduler.ExponentialLR(o, 0.5)
        m.scheduler.step()


def betas(m: Any, o: Any, x: Any) -> None:
    trained(m, o, x)
    o.param_groups[0]["weight_decay"] *= -1.0


def hooked(m: Any, o: Any, x: Any) -> None:
    m.lin.weight.register_hook(lambda grad: grad * 2)
    trained(m, o, x)


def module_hooked(m: Any, o: Any, x: Any) -> None:
    m.register_forward_hook(lambda _module, _args, made: made * 2)
    trained(m, o, x)


def without_gradient(m: Any, o: Any, x: Any) -> None:
    if m.lin.weight.grad is None:
        with torch.no_grad():
            m.out.add_(x[0])
    trained(m, o, x)


def last_gradient(m: Any, o: Any, x: Any) -> None:
    if m.lin.bias.grad is not None:
        with torch.no_grad():
            m.out.copy_(m.lin.bias.grad)
    trained(m, o, x)


def main_gradient(m: Any, o: Any, x: Any) -> None:
    p = m.lin.bias
    if not hasattr(p, "main"):
        p.main = torch.zeros(4)
    p.main = p.main + x[0]
    with torch.no_grad():
        m.out.copy_(p.main)


def disabled(m: Any, o: Any, x: Any) -> None:
    trained(m, o, x)
    torch.set_grad_enabled(False)


DIFFERENT = "one step and the next run different ops at .*test_second_step.py:"
KEPT = "a tensor kept from the step before is used at .*test_second_step.py:"
REFUSED: dict[str, tuple[Callable[[], Any], Callable[..., None], str]] = {
    "counter": (lambda: Layer(calls=0), counted, "the step changes 'calls' each time, got 1 and then 2"),
    "counted and not read": (Counted, trained, "the step changes 'calls' each time, got 1 and then 2"),
    "third step": (lambda: Layer(calls=0), counted_to_three, "the step changes 'calls' each time"),
    "list": (lambda: Layer(calls={"list": []}), listed, r"changes \"len\(calls\['list'\]\)\" each time"),
    "count of a function": (Layer, counted_outside, "the step changes 'STEPS' each time"),
    "train and eval": (Layer, toggled, "the step changes 'training' each time"),
    "tensor": (lambda: Layer(kept=torch.zeros(4)), attribute, f"{KEPT}.* got 'kept' of shape \\(4,\\)"),
    "scale": (lambda: Layer(scale=1.0), scaled, "the step changes 'scale' each time, got 2.0 and then 4.0"),
    "sign of zero": (lambda: Layer(sign=0.0), signed, "changes 'sign' each time, got -0.0 and then 0.0"),
    "type of a number": (lambda: Layer(scale=2.0), typed, DIFFERENT),
    "sign of a constant": (lambda: Layer(scale=0.0), constant, "changes 'scale' each time, got -0.0"),
    "random numbers of Python": (Layer, drawn, DIFFERENT),
    "count of a function in a list": (Layer, counted_in_a_list, "changes 'counter.n' each time"),
    "count of a method": (Layer, _counted_by(Counter().up), "changes 'self.n' each time"),
    "count of a partial method": (
        Layer,
        _counted_by(functools.partial(Counter().up)),
        "changes 'self.n' each time",
    ),
    "count of a method behind a function": (
        Layer,
        _counted_by(_behind(Counter().up)),
        "changes 'self.n' each time",
    ),
    "scheduler": (
        lambda: Layer(scheduler=None),
        scheduled,
        "a scheduler is made or changed in the step at .*test_second_step.py:.* got 'gamma' of ExponentialLR",
    ),
    "sign of an option": (Layer, betas, r"'weight_decay'\]\" each time, got -0.0 and then 0.0"),
    "hook of a parameter": (Layer, hooked, "leaves a hook on a parameter, .* 'lin.weight'"),
    "hook of a module": (Layer, module_hooked, r"changes 'len\(_forward_hooks\)' each time"),
    "no gradient at first": (Layer, without_gradient, DIFFERENT),
    "gradient of the step before": (Layer, last_gradient, "different ops at .*test_second_step.py:"),
    "attribute of a parameter": (
        Layer,
        main_gradient,
        "sets an attribute of a parameter, got 'lin.bias' with 'main'",
    ),
    "gradients disabled": (Layer, disabled, "cannot be traced at .*test_second_step.py:"),
    "buffer that was None": (LazyBuffer, trained, "the step adds a parameter or buffer, got 'cache'"),
    "cache of data": (lambda: Cached(lambda x: x.detach() * 2), trained, f"{KEPT}.* got 'kept' of shape"),
    "cache of random numbers": (lambda: Cached(lambda x: torch.rand(x.shape)), trained, KEPT),
    "cache that is written": (lambda: Cached(lambda x: torch.ones(x.shape).mul_(3)), trained, KEPT),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    model, step, text = REFUSED[name]
    with pytest.raises(UnsupportedError, match=text):
        bridge.trace_step(step, model, OPTIMIZERS["sgd"], rows_of, replicas=2)


@pytest.mark.parametrize(
    "made", [Last(), Rotary(cache=None), Counted(), Layer(calls=0)], ids=lambda m: type(m).__name__
)
def test_model_stays_as_it_is(made: Any) -> None:
    before = dict(vars(made))
    if hasattr(made, "calls") or isinstance(made, Counted):
        with pytest.raises(UnsupportedError):
            bridge.trace_step(
                counted if hasattr(made, "calls") else trained, made, OPTIMIZERS["sgd"], rows_of, replicas=2
            )
    else:
        bridge.trace_step(trained, made, OPTIMIZERS["sgd"], rows_of, replicas=2)
    assert vars(made) == before
    assert all(p.grad is None for p in made.parameters())
    assert torch.is_grad_enabled()


def test_cache_outside_of_the_model() -> None:
    positions.cache_clear()
    with pytest.raises(UnsupportedError, match=f"{KEPT}.* made by one call before trace_step"):
        bridge.trace_step(trained, Global, OPTIMIZERS["sgd"], rows_of, replicas=2)
    positions.cache_clear()
    Global()(torch.ones(8, 4))
    check_claims(trained, Global, OPTIMIZERS["sgd"])


def environment() -> tuple[str | None, ...]:
    return tuple(os.environ.get(name) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"))


def test_environment_of_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "7")
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    before, seen = environment(), []

    def model() -> Any:
        seen.append(environment())
        return Layer()

    def step(m: Any, o: Any, x: Any) -> None:
        seen.append(environment())
        if x.shape[0] != 8:
            raise ValueError

    bridge.trace_step(step, model, OPTIMIZERS["sgd"], rows_of, replicas=2)
    assert set(seen) == {("0", "0", "2", "2"), ("1", "1", "2", "2")}
    assert environment() == before
    with pytest.raises(UnsupportedError):
        bridge.trace_step(step, model, OPTIMIZERS["sgd"], torch.ones(2, 4), replicas=2)
    assert environment() == before
