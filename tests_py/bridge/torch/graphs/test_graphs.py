"""Programs of torch.export, graphs of make_fx, what popsr.prove takes, and steps that depend on the rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import popsr
import popsr.bridge.torch as bridge
from popsr.bridge.torch._ranks.job import grouping_of_one

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from tests_py.bridge.torch import models  # noqa: E402


class Norms(nn.Module):
    """Buffers that are updated, a region without gradients, a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(3)
        self.conv = nn.Conv2d(1, 2, 3)

    def forward(self, x: Any, image: Any) -> Any:
        y = self.norm(self.linear(x))
        z = nn.functional.max_pool2d(self.conv(image), 2)
        with torch.no_grad():
            twice = y * torch.tensor([1.0, 2.0, 3.0])
        return y.sum() + z.mean(), twice


def test_export() -> None:
    module = models.seeded(Norms())
    x, image = torch.randn(5, 4), torch.randn(2, 1, 8, 8)
    made = bridge.from_export(torch.export.export(module, (x, image)), replicas=4, equal="x")
    got, expected = made.run(), module(x, image)
    np.testing.assert_allclose(got["result[0]"], np.full(4, expected[0].item()), rtol=1e-5)
    np.testing.assert_allclose(got["result[1]"][2], expected[1].detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got["norm.running_var"][1], module.norm.running_var.numpy(), rtol=1e-5)
    proof = made.prove()
    assert proof.ok  # the running mean is of x, which is equal
    assert not bridge.from_export(torch.export.export(module, (x, image)), replicas=4).prove().ok


def test_graph_that_writes_its_inputs() -> None:
    def write(w: Any, x: Any) -> Any:
        flat = w.view(-1)
        flat.add_(x.sum())
        flat[0:2].mul_(2)
        return (w * x).sum()

    w, x = torch.randn(2, 3), torch.randn(2, 3)
    made = bridge.from_fx(make_fx(write)(w.clone(), x), w.clone(), x, replicas=2)
    got = made.run()
    expected = w.clone()
    result = write(expected, x)
    np.testing.assert_allclose(got["w_1"][1], expected.numpy(), rtol=1e-6)
    np.testing.assert_allclose(got["result[0]"][0], result.numpy(), rtol=1e-5)
    assert {each.path for each in made.prove().drifting} == {"w_1"}


def test_reshape_of_a_view_is_a_copy() -> None:
    """It keeps the elements that it had when the view is written afterwards."""
    graph = torch.fx.Graph()
    w = graph.placeholder("w")
    turned = graph.call_function(torch.ops.aten.t.default, (w,))
    copy = graph.call_function(torch.ops.aten.reshape.default, (turned, [6]))
    graph.call_function(torch.ops.aten.mul_.Tensor, (w, 2.0))
    graph.output([copy])
    module, w = torch.fx.GraphModule(nn.Module(), graph), torch.randn(2, 3)
    got = bridge.from_fx(module, w, replicas=2).run()
    np.testing.assert_array_equal(got["result[0]"][0], w.t().reshape(6).numpy())
    np.testing.assert_array_equal(got["w"][0], 2 * w.numpy())


def test_ops_on_lists_and_collectives_that_write() -> None:
    def step(w: Any, m: Any, x: Any) -> Any:
        torch._foreach_lerp_([m], [x], 0.5)
        (mean,) = torch._foreach_mul([x], 0.25)
        mean = torch.ops._c10d_functional.all_reduce_(mean, "sum", "0")
        torch._fused_sgd_(
            [w], [mean], [m], weight_decay=0.0, momentum=0.5, lr=0.1, dampening=0.0, nesterov=False,
            maximize=False, is_first_step=False,
        )  # fmt: skip
        return m.sum()

    w, m, x = (torch.randn(3) for _ in range(3))
    module = make_fx(step, tracing_mode="fake")(w.clone(), m.clone(), x)
    made = bridge.from_fx(module, w.clone(), m.clone(), x, replicas=4, equal=["x_1"])
    got = made.run()
    momentum = 0.5 * (m + 0.5 * (x - m)) + x
    np.testing.assert_allclose(got["m_1"][3], momentum.numpy(), rtol=1e-5)
    np.testing.assert_allclose(got["w_1"][3], (w - 0.1 * momentum).numpy(), rtol=1e-5, atol=1e-6)
    # A factor of 1/4 may be a rate: the sum of what is equal may be four times too large.
    assert [lint.code for lint in made.prove().suspicious] == ["L6"]
    assert not made.prove().drifting


def test_prove_reads_graphs_and_programs() -> None:
    def step(w: Any, x: Any) -> Any:
        return w - x.mean()

    module = make_fx(step)(torch.ones(2), torch.ones(2))
    proof = popsr.prove(module, torch.ones(2), torch.ones(2), replicas=2, states={"w_1": 0})
    assert [each.path for each in proof.drifting] == ["w_1"]
    program = torch.export.export(models.mlp(), (torch.ones(4, 6),))
    assert popsr.prove(program, replicas=2).ok


def test_values_of_the_rank() -> None:
    """Numbers, slices, parts and constants that each rank has its own of."""

    def step(_model: Any, x: Any) -> Any:
        rank = dist.get_rank()
        return (
            x * rank,
            x[2 * rank : 2 * rank + 2],
            x.chunk(4)[rank] + 1,
            x[rank],
            x[:2] + torch.full((2, 3), 1.0) * torch.tensor([1.0, 2.0, 3.0]) * (rank + 0.5),
            x[0] + torch.arange(3).float() + torch.tensor([float(rank)] * 3),
        )

    x = torch.randn(8, 3)
    made = bridge.trace_step(step, nn.Module(), None, x, replicas=4, equal=["x"])
    got = made.run()
    for rank in range(4):
        expected = (
            x * rank,
            x[2 * rank : 2 * rank + 2],
            x.chunk(4)[rank] + 1,
            x[rank],
            x[:2] + torch.tensor([1.0, 2.0, 3.0]) * (rank + 0.5),
            x[0] + torch.arange(3).float() + rank,
        )
        for i, each in enumerate(expected):
            np.testing.assert_allclose(got[f"result[{i}]"][rank], each.numpy(), rtol=1e-6, atol=1e-6)
    assert str(made.prove().facts.partition(made.results[0].tensor)) == "{0}{1}{2}{3}"


def test_accumulation_without_synchronisation() -> None:
    """no_sync leaves gradients of the first half of the batch to the sum of the second."""

    def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        with model.no_sync():
            nn.functional.cross_entropy(model(x[:2]), y[:2], reduction="sum").backward()
        loss = nn.functional.cross_entropy(model(x[2:]), y[2:], reduction="sum")
        loss.backward()
        optimizer.step()
        return loss

    def wrapped() -> Any:
        return nn.parallel.DistributedDataParallel(models.mlp())

    def sgd(model: Any) -> Any:
        return torch.optim.SGD(model.parameters(), lr=0.1)

    made = bridge.trace_step(step, wrapped, sgd, models.labelled, replicas=2)
    assert made.prove().ok
    model = models.mlp()
    losses: list[Any] = [
        nn.functional.cross_entropy(model(x), y, reduction="sum") for x, y in map(models.labelled, range(2))
    ]
    (sum(losses) / 2).backward()
    sgd(model).step()
    np.testing.assert_allclose(
        made.run()["module.first.weight"][0], model.first.weight.detach().numpy(), rtol=1e-5, atol=1e-6
    )


def test_model_and_optimizer_stay_as_they_are() -> None:
    model = models.mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    bridge.trace_step(models.data_parallel(), model, optimizer, *models.labelled(0), replicas=2)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert optimizer.param_groups[0]["params"][0] is model.first.weight
    assert model.first.weight.grad is None
    assert not dist.is_initialized()


@pytest.mark.parametrize(
    ("members", "groups"),
    [
        ((0, 1), "{0,1}{2,3}{4,5}{6,7}"),
        ((2, 6), "{0,4}{1,5}{2,6}{3,7}"),
        ((1, 3, 5, 7), "{0,2,4,6}{1,3,5,7}"),
        ((1, 2), None),
        ((0, 1, 2), None),
        ((0, 3), None),
        ((0, 2, 3), None),
    ],
)
def test_groups_like_one_that_is_known(members: tuple[int, ...], groups: str | None) -> None:
    if groups is not None:
        assert str(grouping_of_one("g", members, 8, "here").partition) == groups
        return
    with pytest.raises(popsr.errors.ReplicaError, match="the other groups of process group 'g' are unknown"):
        grouping_of_one("g", members, 8, "here")


def test_the_job_of_the_user() -> None:
    """In a job that runs its own rank is traced, and its groups are continued over all ranks."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=1, world_size=4, store=FakeStore())
    try:
        pair = dist.new_group([0, 1])

        def step(_model: Any, x: Any) -> Any:
            return torch.distributed._functional_collectives.all_reduce(x, "sum", pair)

        made = bridge.trace_step(step, nn.Module(), None, torch.ones(2), replicas=4)
    finally:
        dist.destroy_process_group()
    assert str(made.prove().facts.partition(made.results[0].tensor)) == "{0,1}{2,3}"
