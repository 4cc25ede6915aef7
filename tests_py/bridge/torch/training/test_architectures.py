"""A clipped training step of each kind of model on 4 and 8 replicas, against torch running all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

from tests_py.bridge.torch.models import seeded  # noqa: E402
from tests_py.bridge.torch.traced.test_steps import compare, sgd  # noqa: E402
from tests_py.bridge.torch.training.architectures import MODELS  # noqa: E402


def step_with(loss_of: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        for p in model.parameters():
            if p.grad is not None:
                dist.all_reduce(p.grad)
                p.grad /= dist.get_world_size()
        for buffer in model.buffers():
            if buffer.is_floating_point():
                dist.all_reduce(buffer)
                buffer /= dist.get_world_size()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return step


@pytest.mark.share(5)
@pytest.mark.parametrize("world", [4, pytest.param(8, marks=pytest.mark.slow)], ids="{} replicas".format)
@pytest.mark.parametrize("name", MODELS)
def test_model(name: str, world: int) -> None:
    make, batch, loss_of = MODELS[name]
    made = compare(step_with(loss_of), lambda: seeded(make()), sgd, batch, world, ranks="first")
    proof = made.prove()
    assert proof.ok, str(proof)
    print(f"\n{name}: {made.ir._core.num_ops} ops")
