"""Modules of DTensor and FSDP2, against torch running all ranks."""

from __future__ import annotations

from typing import Any

import pytest

import popsr.bridge.torch as bridge

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor  # noqa: E402
from torch.distributed.tensor.parallel import (  # noqa: E402
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from tests_py.bridge.torch import models  # noqa: E402
from tests_py.bridge.torch.traced.test_steps import compare, sgd  # noqa: E402


def _part(p: Any, mesh: Any, placement: Any) -> Any:
    whole = p.detach()
    size, rank = dist.get_world_size(), dist.get_rank()
    part = whole.chunk(size, placement.dim)[rank].contiguous() if placement.is_shard() else whole
    return nn.Parameter(DTensor.from_local(part, mesh, [placement], run_check=False))


def column_and_row() -> Any:
    """A hidden layer as DTensors: split by columns, then by rows."""
    mesh, model = init_device_mesh("cpu", (dist.get_world_size(),)), models.mlp()
    model.first.weight = _part(model.first.weight, mesh, Shard(0))
    model.first.bias = _part(model.first.bias, mesh, Shard(0))
    model.second.weight = _part(model.second.weight, mesh, Shard(1))
    model.second.bias = _part(model.second.bias, mesh, Replicate())
    model.mesh = mesh
    return model


def shared_batch(_rank: int) -> Any:
    return models.labelled(0)


def dtensor_step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    optimizer.zero_grad()
    out = model(DTensor.from_local(x, model.mesh, [Replicate()], run_check=False))
    loss = F.cross_entropy(out.full_tensor(), y)
    loss.backward()
    optimizer.step()
    return loss


def test_dtensor() -> None:
    made = compare(dtensor_step, column_and_row, sgd, shared_batch, 4, equal=["x", "y"])
    proof = made.prove()
    assert proof.ok
    assert str(proof.value("first.weight").declared) == "{0}{1}{2}{3}"
    assert str(proof.value("second.bias").proved) == "{0,1,2,3}"


def sharded(*shape: int, **options: Any) -> Any:
    def model() -> Any:
        names = ("repeat", "shard")[2 - len(shape) :]
        mesh, made = init_device_mesh("cpu", shape, mesh_dim_names=names), models.mlp()
        fully_shard(made.first, mesh=mesh, **options)
        return fully_shard(made, mesh=mesh, **options)

    return model


@pytest.mark.share(2)
@pytest.mark.parametrize(("shape", "groups"), [((4,), "{0}{1}{2}{3}"), ((2, 2), "{0,2}{1,3}")])
def test_fully_sharded(shape: tuple[int, ...], groups: str) -> None:
    made = bridge.trace_step(models.plain_step, sharded(*shape), sgd, models.labelled, replicas=4)
    proof = made.prove()
    assert proof.ok
    assert all(str(each.declared) == groups for each in proof.states)
    made.run()
    got = made.run()
    reference = bridge.trace_step(models.data_parallel(), models.mlp, sgd, models.labelled, replicas=4)
    reference.run()
    wanted = reference.run()
    size = shape[-1]
    for path in ("first.weight", "second.bias", "optimizer.first.weight.momentum_buffer"):
        for rank in range(4):
            part = wanted[path][rank].reshape(size, -1)[rank % size].reshape(got[path][rank].shape)
            assert abs(got[path][rank] - part).max() <= 1e-5 * abs(part).max(), path


def mixed_step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    """As FSDP2 computes in bfloat16: parameters and inputs are cast, gradients reduced in float32."""
    optimizer.zero_grad()
    narrow = {name: p.to(torch.bfloat16) for name, p in model.named_parameters()}
    loss = F.cross_entropy(torch.func.functional_call(model, narrow, x.to(torch.bfloat16)).float(), y)
    grads = torch.autograd.grad(loss, list(narrow.values()))
    for p, grad in zip(model.parameters(), grads, strict=True):
        p.grad = models.average("", grad.float())
    optimizer.step()
    return loss


def test_precision_of_its_own() -> None:
    def model() -> Any:
        mesh, made = init_device_mesh("cpu", (4,)), models.mlp()
        fully_shard(made.first, mesh=mesh, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, output_dtype=torch.float32)
        return fully_shard(made, mesh=mesh, mp_policy=policy)

    made = bridge.trace_step(models.plain_step, model, sgd, models.labelled, replicas=4)
    assert made.prove().ok
    got = made.run()
    reference = bridge.trace_step(mixed_step, models.mlp, sgd, models.labelled, replicas=4)
    wanted = reference.run()
    for path in ("first.weight", "second.bias", "optimizer.first.weight.momentum_buffer"):
        for rank in range(4):
            part = wanted[path][rank].reshape(4, -1)[rank].reshape(got[path][rank].shape)
            assert abs(got[path][rank] - part).max() <= 1e-6 * abs(part).max(), path
    reduced = [t for t in str(made.ir).splitlines() if "replicated_reduce_scatter" in t]
    assert reduced
    assert not any("bf" in t for t in reduced)
    assert any("bf" in t for t in str(made.ir).splitlines() if "replicated_all_gather" in t)


class Rows(nn.Module):
    """A weight on all ranks, for rows that each rank has a part of."""

    def __init__(self) -> None:
        super().__init__()
        self.mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        whole = torch.arange(12.0).view(6, 2) / 12
        self.w = nn.Parameter(distribute_tensor(whole, self.mesh, [Replicate()]))


def rows_step(model: Any, _optimizer: Any, x: Any, _y: Any) -> Any:
    rows = DTensor.from_local(x, model.mesh, [Shard(0)])
    loss = ((rows @ model.w) ** 2).mean()
    (grad,) = torch.autograd.grad(loss, (model.w,))
    with torch.no_grad():
        model.w -= 0.1 * grad
    return loss


def test_rows_of_each_rank() -> None:
    """DTensor calls the sum of the gradients as it computes an op, of which the step says nothing."""
    made = compare(rows_step, Rows, sgd, models.labelled, 4)
    assert made.prove().ok


def test_tensor_parallel_recipe() -> None:
    def model() -> Any:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
        plan = {"first": ColwiseParallel(), "second": RowwiseParallel()}
        made: Any = parallelize_module(models.mlp(), mesh["tensor"], plan)
        made.data = mesh["data"].get_group()
        return made

    def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad.to_local(), dist.ReduceOp.AVG, group=model.data)
        optimizer.step()
        return loss

    pairs = [[0, 1], [2, 3]]
    made = compare(step, model, sgd, lambda rank: models.labelled(rank // 2), 4, groups={"[xy]": pairs})
    proof = made.prove()
    assert proof.ok
    assert str(proof.value("first.weight").proved) == "{0,2}{1,3}"
