"""Wrappers, optimisers and collectives that are not read are named, with the line and what is read instead."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

import popsr.bridge.torch as bridge
from popsr.errors import UnsupportedError

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager  # noqa: E402
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: E402, N817

from tests_py.bridge.torch.wrappers import wrapped  # noqa: E402
from tests_py.bridge.torch.wrappers.wrapped import batch_of, loss, plain, sgd, updated  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, of what it has replaced


def fully_sharded() -> Any:
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(wrapped.Two(), device_id=torch.device("cpu"))


def inside() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.DataParallel(torch.nn.Linear(4, 4)))


def engine() -> Any:
    """A wrapper of a package that is not installed here."""
    name = "deepspeed.runtime.engine"
    module: Any = sys.modules.setdefault(name, types.ModuleType(name))
    module.DeepSpeedEngine = type("DeepSpeedEngine", (wrapped.Two,), {"__module__": name})
    return module.DeepSpeedEngine()


def zero(model: Any) -> Any:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    return ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)


def local_sgd(model: Any) -> Any:
    from torch.distributed.optim import PostLocalSGDOptimizer

    return PostLocalSGDOptimizer(sgd(model), PeriodicModelAverager(period=4, warmup_steps=2))


def then(call: Any) -> Any:
    def gradients(m: Any, x: Any, y: Any) -> None:
        plain(m, x, y)
        call(m, x)

    return gradients


def averaged(m: Any, x: Any) -> None:
    PeriodicModelAverager(period=4, warmup_steps=100).average_parameters(m.parameters())


@pytest.mark.parametrize(
    ("model", "optimizer", "told"),
    [
        (fully_sharded, sgd, "FullyShardedDataParallel is not read at .*, expected fully_shard"),
        (
            lambda: torch.nn.DataParallel(wrapped.Two()),
            sgd,
            "DataParallel is not read at .*, expected Distributed",
        ),
        (inside, sgd, "DataParallel is not read at .*, expected Distributed"),
        (engine, sgd, "deepspeed.DeepSpeedEngine is not read at .*, expected DistributedDataParallel, or"),
        (wrapped.Two, zero, "ZeroRedundancyOptimizer is not read at .*, expected an optimizer of all"),
        (
            lambda: DDP(wrapped.Two()),
            local_sgd,
            "PostLocalSGDOptimizer is not read at .*, expected an optimizer of t",
        ),
    ],
)
def test_wrappers(model: Any, optimizer: Any, told: str) -> None:
    with pytest.raises(UnsupportedError, match=rf"trace_step: {told}") as caught:
        bridge.trace_step(updated(plain), model, optimizer, batch_of, replicas=2)
    assert "test_unread.py:" in str(caught.value)


@pytest.mark.parametrize(
    ("gradients", "told"),
    [
        (then(averaged), "ModelAverager is not read"),
        (then(lambda m, x: dist.all_gather_object([None, None], 1.0)), "got all_gather_object"),
        (then(lambda m, x: dist.gather_object(1.0, [None, None])), "got gather_object"),
        (then(lambda m, x: dist.broadcast_object_list([1])), "got broadcast_object_list"),
        (then(lambda m, x: dist.scatter_object_list([None], [1, 2])), "got scatter_object_list"),
        (then(lambda m, x: dist.send_object_list([1], 1)), "got send_object_list"),
        (
            then(lambda m, x: dist.all_reduce(x, async_op=True).get_future().value()),
            r"got value\(\) before wait",
        ),
        (
            then(lambda m, x: dist.all_reduce(x, async_op=True).get_future().then(print)),
            "got a callback, which runs",
        ),
        (then(lambda m, x: dist.all_reduce(x, async_op=True).get_future().done()), r"got done\(\)"),
    ],
)
def test_calls_in_a_step(gradients: Any, told: str) -> None:
    with pytest.raises(
        UnsupportedError, match=rf"test_unread.py:\d+, .*{told}|{told} at .*test_unread.py:\d+"
    ):
        bridge.trace_step(updated(gradients), wrapped.Two, sgd, batch_of, replicas=2)


def test_barriers_and_futures_are_followed() -> None:
    def step(m: Any, optimizer: Any, x: Any, y: Any) -> None:
        dist.barrier()
        made = loss(m(x)).detach()
        dist.monitored_barrier()
        found = dist.all_reduce(made, async_op=True).get_future().wait()
        with torch.no_grad():
            m.a.weight.mul_(found[0])

    proof = bridge.trace_step(step, wrapped.Two(), sgd, batch_of, replicas=2).prove()
    assert proof.ok
