"""Gradient scalers over tensor parallelism: torch's own rule for the check for infinities, against gloo ranks."""

from __future__ import annotations

from typing import Any

import pytest

import popsr.bridge.torch as bridge

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor, Replicate, distribute_module  # noqa: E402
from torch.distributed.tensor.parallel import (  # noqa: E402
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from tests_py.bridge.torch import gloo  # noqa: E402

SCALE = 2.0**97
"""So large that the gradient of the second rank's columns is not finite, and all others are."""


def model() -> Any:
    made: Any = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    with torch.no_grad():
        made[0].weight.copy_(torch.eye(4))
        made[0].bias.fill_(1.0)
        made[1].weight.fill_(0.001)
        made[2].weight[:, :2] = 1.0
        made[2].weight[:, 2:] = 1.5e8
    mesh = init_device_mesh("cpu", (2,))
    parallelize_module(made, mesh, {"1": ColwiseParallel(), "2": RowwiseParallel()})
    distribute_module(made[0], mesh, None, enter, lambda _, out, on: out.to_local())
    return made


def enter(_: Any, inputs: Any, mesh: Any) -> Any:
    return (DTensor.from_local(inputs[0], mesh, [Replicate()], run_check=False),)


def optimizer(m: Any, order: int) -> Any:
    made = torch.optim.SGD(list(m.parameters())[::order], lr=1e-3, momentum=0.9)
    made.scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)  # type: ignore[attr-defined]
    return made


def step(m: Any, o: Any, x: Any) -> None:
    o.zero_grad()
    o.scaler.scale(m(x).sum()).backward()
    o.scaler.step(o)
    o.scaler.update()


def biases(order: int) -> list[float]:
    m = model()
    step(m, optimizer(m, order), torch.ones(4, 4))
    return [float(each) for each in m[0].bias.to_local()]


@pytest.mark.share(2)
@pytest.mark.parametrize("order", [1, -1])
def test_infinities_are_shared_by_the_placements_of_the_first_gradient(order: int) -> None:
    """Torch reduces the check over the axes that the optimiser's first gradient is cut along, and over no others."""
    made = bridge.trace_step(
        step, model, lambda m: optimizer(m, order), torch.ones(4, 4), replicas=2, equal=["x"]
    )
    is_first_whole = order == 1
    proof = made.prove()
    assert ("0.bias" in {each.path for each in proof.drifting}) is is_first_whole
    assert proof.ok is not is_first_whole
    first, second = gloo.run(2, biases, order)
    assert (first != second) is is_first_whole


def sharded() -> Any:
    """FSDP2 over tensor parallelism."""
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4))
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    parallelize_module(made, mesh["tensor"], {"0": ColwiseParallel(), "1": RowwiseParallel()})
    return fully_shard(made, mesh=mesh["data"])


def batch_of(rank: int) -> Any:
    """Ranks that split layers share it; gradients of the second two are not finite."""
    return torch.full((4, 4), 1.0 if rank < 2 else 1e12)


def scales_and_biases() -> tuple[float, list[float]]:
    m = sharded()
    o = optimizer(m, 1)
    step(m, o, batch_of(torch.distributed.get_rank()))
    return o.scaler.get_scale() / SCALE, m[1].bias.to_local().tolist()


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
def test_shards_of_tensor_parallel_layers_skip_together() -> None:
    """Ways of a rank that have graphs of another rank call its process groups by one name."""
    made = bridge.trace_step(
        step,
        sharded,
        lambda m: optimizer(m, 1),
        lambda rank: (batch_of(rank),),
        replicas=4,
        groups={"x": [[0, 1], [2, 3]]},
    )
    proof = made.prove()
    assert proof.ok, proof
    bias = proof.value("1.bias").proved
    assert list(bias.labels) == [0, 0, 1, 1]
    found = gloo.run(4, scales_and_biases)
    assert [scale for scale, _ in found] == [0.5] * 4
    assert (found[0], found[2]) == (found[1], found[3])


def cycled(m: Any) -> Any:
    """An optimiser whose moments are of numbers that a scheduler sets."""
    made = torch.optim.AdamW(m.parameters(), lr=0.01, fused=True)
    made.scaler = torch.amp.GradScaler("cpu", init_scale=8.0)  # type: ignore[attr-defined]
    made.scheduler = torch.optim.lr_scheduler.OneCycleLR(made, 0.1, total_steps=10)
    return made


def cycled_step(m: Any, o: Any, x: Any) -> None:
    step(m, o, x)
    o.scheduler.step()


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
def test_numbers_of_a_schedule_decide_no_lookup_of_dtensor() -> None:
    """Torch's table of ops of DTensors asks if numbers are equal, also those of the trace before."""
    made = bridge.trace_step(
        cycled_step,
        sharded,
        cycled,
        lambda rank: (batch_of(0),),
        replicas=4,
        groups={"x": [[0, 1], [2, 3]]},
    )
    assert made.prove().ok
