"""Hooks that parameters have when the model is made, and references to parameters, against ranks of gloo."""

from __future__ import annotations

import functools
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch.autograd import Function  # noqa: E402
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: E402, N817

from tests_py.bridge.torch.wrappers import wrapped  # noqa: E402
from tests_py.bridge.torch.wrappers.wrapped import Made, Two, loss, outcome, plain, sgd, updated  # noqa: E402


def mean(p: Any) -> None:
    dist.all_reduce(p.grad)
    p.grad /= dist.get_world_size()


def mean_of(grad: Any) -> Any:
    grad = grad.clone()
    dist.all_reduce(grad)
    return grad / dist.get_world_size()


def after_accumulation() -> Made:
    model = Two()
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(mean)
    return model, sgd(model), updated(plain)


def after_accumulation_of_some() -> Made:
    model = Two()
    for p in model.a.parameters():
        p.register_post_accumulate_grad_hook(mean)
    return model, sgd(model), updated(plain)


def of_gradients() -> Made:
    model = Two()
    for p in model.parameters():
        p.register_hook(mean_of)
    return model, sgd(model), updated(plain)


def of_gradients_of_ddp() -> Made:
    model = DDP(Two())
    for p in model.module.a.parameters():
        p.register_hook(lambda grad: 2 * grad)
    return model, sgd(model), updated(plain)


def weighted(p: Any) -> None:
    p.grad *= 1 + dist.get_rank()


def after_accumulation_in_ddp() -> Made:
    """Runs before the reduction of its parameter."""
    model = DDP(Two())
    for p in model.module.a.parameters():
        p.register_post_accumulate_grad_hook(weighted)
    return model, sgd(model), updated(plain)


def of_nodes() -> Made:
    model = Two()
    model.nodes = []
    for p in model.parameters():
        node = p.expand_as(p).grad_fn.next_functions[0][0]
        node.register_hook(lambda *_, p=p: mean(p))
        model.nodes.append(node)
    return model, sgd(model), updated(plain)


def of_modules() -> Made:
    """The gradient that reaches the first layer is averaged, those of layers that see data of their own are not."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    model[1].register_full_backward_hook(lambda _module, into, _out: tuple(mean_of(each) for each in into))
    return model, sgd(model), updated(plain)


def before_steps() -> Made:
    model = Two()
    optimizer = sgd(model)

    def average(*_: Any) -> None:
        for p in model.parameters():
            mean(p)

    optimizer.register_step_pre_hook(average)
    return model, optimizer, updated(plain)


def own_optimizers() -> Made:
    """An optimiser for each parameter, which steps in the backward pass."""
    model = Two()
    own = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def step(p: Any) -> None:
        own[p].step()
        own[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step)
    return model, sgd(model), updated(plain)


def own_optimizers_of_means() -> Made:
    model, optimizer, step = own_optimizers()
    for p in model.parameters():
        hooks = list(p._post_accumulate_grad_hooks.values())
        p._post_accumulate_grad_hooks.clear()
        p.register_post_accumulate_grad_hook(mean)
        p.register_post_accumulate_grad_hook(hooks[0])
    return model, optimizer, step


def by_list() -> Made:
    """A list of the parameters that was made before the step."""
    model = Two()
    held = list(model.parameters())

    def step(m: Any, x: Any, y: Any) -> None:
        loss(m(x)).backward()
        for p in held:
            mean(p)

    return model, sgd(model), updated(step)


def written_by_list() -> Made:
    model = Two()
    held = list(model.a.parameters())

    def step(m: Any, x: Any, y: Any) -> None:
        loss(m(x)).backward()
        for p in m.parameters():
            mean(p)
        with torch.no_grad():
            held[0] += x.sum()
            held[1].data.copy_(y[0, :2])

    return model, sgd(model), updated(step)


def read_by_list() -> Made:
    """The step takes one parameter from another, which drifts."""
    model = Two()
    held = [model.a.weight]

    def step(m: Any, x: Any, y: Any) -> None:
        loss(m.a(x)).backward()
        with torch.no_grad():
            m.b.weight.copy_(held[0])

    return model, sgd(model), updated(step)


def inputs_of_backward() -> Made:
    model = Two()
    held = list(model.a.parameters())

    def step(m: Any, x: Any, y: Any) -> None:
        loss(m(x)).backward(inputs=held)

    return model, sgd(model), updated(step)


ROWS = {
    "after accumulation": after_accumulation,
    "after accumulation of some": after_accumulation_of_some,
    "of gradients": of_gradients,
    "of gradients of ddp": of_gradients_of_ddp,
    "after accumulation in ddp": after_accumulation_in_ddp,
    "of nodes": of_nodes,
    "of modules": of_modules,
    "before steps": before_steps,
    "own optimizers": own_optimizers,
    "own optimizers of means": own_optimizers_of_means,
    "by a list": by_list,
    "written by a list": written_by_list,
    "read by a list": read_by_list,
    "inputs of backward": inputs_of_backward,
}


def all_outcomes() -> dict[str, Any]:
    return {name: outcome(name, ROWS) for name in ROWS}


@functools.cache
def real() -> dict[str, set[str] | str]:
    return wrapped.real_outcomes(all_outcomes)


@pytest.mark.share(3)
@pytest.mark.parametrize("name", ROWS)
def test_equal_where_ranks_are(name: str) -> None:
    assert wrapped.proved_outcome(ROWS[name]) == real()[name]


def of_several() -> Made:
    model = Two()
    torch.autograd.graph.register_multi_grad_hook(list(model.parameters()), lambda grads: None)
    return model, sgd(model), updated(plain)


def of_nodes_in_ddp() -> Made:
    model, optimizer, step = of_nodes()
    return DDP(model), optimizer, step


def own_momentum() -> Made:
    model = Two()
    other = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(m: Any, _optimizer: Any, x: Any, y: Any) -> None:
        plain(m, x, y)
        other.step()

    return model, sgd(model), step


class Twice(Function):
    @staticmethod
    def forward(ctx: Any, t: Any) -> Any:
        return 2 * t

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return 2 * grad


def in_functions() -> Made:
    model = Two()
    held = model.a.weight

    def step(m: Any, x: Any, y: Any) -> None:
        (loss(m(x)) + Twice.apply(held).sum()).backward()

    return model, sgd(model), updated(step)


def sent() -> Made:
    model = Two()
    held = model.a.weight.detach()
    return model, sgd(model), updated(lambda m, x, y: dist.broadcast(held, 0))


def gathered() -> Made:
    model = Two()
    held = model.a.weight.detach()

    def step(m: Any, x: Any, y: Any) -> None:
        outs = [torch.zeros(2, 4), torch.zeros(2, 4)]
        dist.all_gather(outs, held)
        m.b.weight.data.copy_(outs[0])

    return model, sgd(model), updated(step)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (in_functions, "a gradient of 'a.weight' does not come through the model"),
        (sent, "from outside of the step's arguments, got 'a.weight'"),
        (gathered, "from outside of the step's arguments, got 'a.weight'"),
        (of_several, "register_multi_grad_hook of 'a.weight'"),
        (of_nodes_in_ddp, "test_hooks.py:"),
        (own_momentum, "an optimizer that trace_step was not given has state, got SGD at "),
    ],
)
def test_unfollowed_are_refused_by_name(row: Any, told: str) -> None:
    found = wrapped.proved_outcome(row)
    assert isinstance(found, str)
    assert found.startswith("UnsupportedError: ")
    assert told in found
