"""``torch.compile`` around any part of a step: the trace runs what was compiled, under its paths without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: E402, N817

import popsr.bridge.torch as bridge  # noqa: E402
from tests_py.bridge.torch.wrappers import wrapped  # noqa: E402
from tests_py.bridge.torch.wrappers.wrapped import Made, Two, loss, plain, sgd, updated  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, as it imports its compiler

ALL = {"module.a.weight", "module.a.bias", "module.b.weight", "module.b.bias"}


def adam(model: Any) -> Any:
    return torch.optim.Adam(model.parameters(), lr=0.1, foreach=True)


def of(change: Callable[[Any], Any], wrap: Any = DDP) -> Callable[[], Made]:
    """A row: a module that a function changes before it is wrapped."""

    def made() -> Made:
        module = Two()
        changed = change(module)
        model = wrap(module if changed is None else changed)
        return model, sgd(model), updated(plain)

    return made


def of_loss(**options: Any) -> Callable[[], Made]:
    def made() -> Made:
        compiled = torch.compile(loss, **options)
        model = DDP(Two())
        return model, sgd(model), updated(lambda m, x, y: compiled(m(x)).backward())

    return made


def of_step() -> Made:
    model = DDP(Two())
    return model, sgd(model), torch.compile(updated(plain), fullgraph=True)


def of_optimizer() -> Made:
    model = DDP(Two())
    optimizer = adam(model)
    optimizer.step = torch.compile(optimizer.step)
    return model, optimizer, updated(plain)


def of_optimizer_by_function() -> Made:
    model = DDP(Two())
    optimizer = adam(model)

    @torch.compile(fullgraph=False)
    def update() -> None:
        optimizer.step()

    def step(m: Any, optimizer: Any, x: Any, y: Any) -> None:
        optimizer.zero_grad()
        plain(m, x, y)
        update()

    return model, optimizer, step


def in_step() -> Made:
    """Compiled anew in each step."""
    model = DDP(Two())
    return model, sgd(model), updated(lambda m, x, y: torch.compile(loss)(m(x)).backward())


def of_methods() -> Made:
    model = DDP(Two())
    model.compile()
    model.module.a.compile(fullgraph=True, dynamic=False)
    return model, sgd(model), updated(plain)


def layer(module: Any) -> None:
    module.a = torch.compile(module.a, mode="reduce-overhead")


ROWS: dict[str, Callable[[], Made]] = {
    "loss": of_loss(),
    "loss, whole graph": of_loss(fullgraph=True, backend="eager"),
    "inside of the wrapper": of(torch.compile),
    "around the wrapper": of(lambda module: None, lambda module: torch.compile(DDP(module))),
    "a layer": of(layer),
    "step": of_step,
    "step of the optimizer": of_optimizer,
    "function around the optimizer": of_optimizer_by_function,
    "in the step": in_step,
    "methods": of_methods,
}


@pytest.mark.share(2)
@pytest.mark.parametrize("name", ROWS)
def test_equal_as_without(name: str) -> None:
    assert wrapped.proved_outcome(ROWS[name]) == set()


def drifting(row: Callable[[], Made]) -> Callable[[], Made]:
    """The row without the reduction."""

    def made() -> Made:
        model, optimizer, step = row()

        def alone(m: Any, *args: Any) -> None:
            with getattr(m, "_orig_mod", m).no_sync():
                step(m, *args)

        return model, optimizer, alone

    return made


@pytest.mark.share(2)
@pytest.mark.parametrize("name", ["loss", "inside of the wrapper", "a layer", "methods"])
def test_drifts_under_the_same_paths(name: str) -> None:
    assert wrapped.proved_outcome(drifting(ROWS[name])) == ALL


def test_paths_of_state_and_groups() -> None:
    """Names of compiled modules are in no path: of states, of their optimiser, of gradients and of groups."""

    def model() -> Any:
        return nn.Sequential(torch.compile(nn.Linear(4, 4)), torch.compile(nn.Sequential(nn.BatchNorm1d(4))))

    def step(m: Any, optimizer: Any, x: Any, y: Any) -> None:
        loss(m(x)).backward()
        optimizer.step()

    made = bridge.trace_step(
        step,
        model,
        adam,
        wrapped.batch_of,
        replicas=2,
        groups={"0.weight": range(2), "1.0.running_*": range(2)},
    )
    paths = {each.path for each in made.prove().states}
    assert {"0.weight", "0.weight.grad", "optimizer.0.weight.exp_avg", "1.0.running_mean"} <= paths
    assert not any("_orig_mod" in path for path in paths)
    assert str(made.argument("0.weight").grouping.partition) == "{0}{1}"
