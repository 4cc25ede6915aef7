"""One mistake of a model of PyTorch is told once, in the names of its device mesh."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import popsr.bridge.torch as bridge

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor.parallel import (  # noqa: E402
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

PLAN = {"up": ColwiseParallel(), "down": RowwiseParallel()}


class Block(nn.Module):
    def __init__(self, rate: float) -> None:
        super().__init__()
        self.up, self.down, self.drop = nn.Linear(4, 8), nn.Linear(8, 4), nn.Dropout(rate)

    def forward(self, x: Any) -> Any:
        return x + self.drop(self.down(torch.relu(self.up(x))))


class Net(nn.Module):
    def __init__(self, rate: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.Sequential(Block(rate), Block(rate))
        self.head = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.head(self.layers(x))


def train(model: Any, optimizer: Any, x: Any) -> Any:
    optimizer.zero_grad()
    F.mse_loss(model(x), x).backward()
    optimizer.step()


def traced(make: Callable[[], Any], replicas: int = 4, step: Any = train, **options: Any) -> Any:
    return bridge.trace_step(
        step,
        make,
        lambda m: torch.optim.SGD(m.parameters(), 0.1),
        torch.ones(2, 4),
        replicas=replicas,
        **options,
    )


def tensor_parallel(mesh: Any) -> Any:
    made = Net()
    for block in made.layers:
        parallelize_module(block, mesh, PLAN)
    return made


def rows() -> Any:
    return tensor_parallel(init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))["tp"])


def columns() -> Any:
    """Neighbours are data-parallel."""
    return tensor_parallel(DeviceMesh("cpu", [[0, 2], [1, 3]], mesh_dim_names=("dp", "tp"))["tp"])


def nameless() -> Any:
    return tensor_parallel(DeviceMesh("cpu", [0, 1, 2, 3]))


def sharded() -> Any:
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("shard",))
    made = Net()
    for block in made.layers:
        fully_shard(block, mesh=mesh)
    return fully_shard(made, mesh=mesh)


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("make", "sizes", "up", "bias"),
    [
        (rows, {"dp": 2, "tp": 2}, "sharded over tp {0,2}{1,3}", "equal over dp, tp"),
        (columns, {"dp": 2, "tp": 2}, "sharded over tp {0,1}{2,3}", "equal over dp, tp"),
        (nameless, None, "{0}{1}{2}{3}", "{0,1,2,3}"),
        (sharded, {"shard": 4}, "sharded over shard", "sharded over shard"),
        (Net, None, "{0,1,2,3}", "{0,1,2,3}"),
    ],
)
def test_declared_groups_are_dimensions_of_the_mesh(
    make: Callable[[], Any], sizes: dict[str, int] | None, up: str, bias: str
) -> None:
    step = traced(make)
    assert (None if step.axes is None else step.axes.sizes) == sizes
    proof = step.prove()
    assert proof.value("layers.0.up.weight").shown_declared == up
    assert proof.value("layers.0.down.bias").shown_declared == bias


def test_gradients_that_nobody_averages_over_data_are_named_by_it() -> None:
    proof = traced(rows, groups={"x": [[0, 1], [2, 3]]}).prove()
    cut, whole = proof.problems
    assert cut.startswith(
        "'layers.*.up.weight', 'layers.*.up.bias', 'layers.*.down.weight' (6 values) differ over dp, declared sharded "
        "over tp {0,2}{1,3}: in 'layers.*.up', 'layers.*.down' each replica has a part of its gradient, made at "
        "test_causes_torch.py:"
    )
    assert whole.startswith(
        "'layers.*.down.bias', 'head.weight', 'head.bias' (4 values) differ over dp {0,1}{2,3}: in 'layers.*.down', "
        "'head' each replica has a part"
    )
    assert all("stream 'x'" in text for text in (cut, whole))


def test_a_mesh_that_cuts_nothing_names_its_axes() -> None:
    def make() -> Any:
        made: Any = Net()
        made.mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        return made

    def step(model: Any, optimizer: Any, x: Any) -> None:
        optimizer.zero_grad()
        F.mse_loss(model(x), x).backward()
        for p in model.parameters():
            torch.distributed.all_reduce(p.grad, group=model.mesh.get_group("dp"))
        optimizer.step()

    [text] = traced(make, step=step).prove().problems
    assert " differ over tp {0,2}{1,3}: " in text


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_a_missing_sum_comes_before_random_numbers(rate: float) -> None:
    proof = traced(lambda: Net(rate), 2).prove()
    assert len(proof.drifting) == 10
    [text] = proof.problems
    assert text.startswith("'layers.*.up.weight', 'layers.*.up.bias', 'layers.*.down.weight', ")
    head, _, tail = text.partition("; replicas differ as ")
    assert "each replica has a part of its gradient" in head
    assert "random seed" not in head
    assert "stream 'x'" in tail or "random seed" in tail


def test_states_without_a_gradient_come_after_those_whose_sum_is_missing() -> None:
    def make() -> Any:
        return nn.Sequential(nn.BatchNorm1d(4), Net(0.5))

    first, second = traced(make, 2).prove().problems
    assert "each replica has a part of its gradient" in first
    assert second.startswith("'0.running_mean', '0.running_var' differ inside groups")
    assert second.endswith(" in '0'")


class Buffers(nn.Module):
    """A buffer of the root, and those of a part, which one mistake makes differ at two lines."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: Any) -> Any:
        self.get_buffer("seen").add_(x.mean(0))
        return self.norm(x)


def test_a_scope_is_that_of_the_line() -> None:
    """The first line is outside of the module in which the other is."""
    line = inspect.getsourcelines(Buffers.forward)[1]
    made = bridge.trace_step(lambda model, x: model(x).sum(), Buffers, None, torch.ones(4, 4), replicas=2)
    proof = made.prove()
    assert {each.path for each in proof.drifting} == {"seen", "norm.running_mean", "norm.running_var"}
    [text] = proof.problems
    at = f"test_causes_torch.py:{line + 1}", f"test_causes_torch.py:{line + 2}"
    is_root = text.startswith("'seen'")
    first, other = at if is_root else at[::-1]
    scope = "" if is_root else " in 'norm'"
    assert text.endswith(f"; made at {first}{scope}; likewise at {other}")
