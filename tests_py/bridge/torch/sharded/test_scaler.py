"""``GradScaler`` of DTensors: torch reduces what it finds by the placements of the first gradient alone."""

from __future__ import annotations

from typing import Any

import pytest

import popsr.bridge.torch as bridge

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import Replicate, Shard, distribute_tensor  # noqa: E402

from tests_py.bridge.torch import gloo  # noqa: E402

X = torch.tensor([1.0, 3e38])


class Parts(nn.Module):
    """A parameter that is on all ranks and one that is cut, in one order or the other."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        mesh = init_device_mesh("cpu", (2,))
        for name in names:
            placement = Replicate() if name == "whole" else Shard(0)
            setattr(self, name, nn.Parameter(distribute_tensor(torch.zeros(2), mesh, [placement])))


def step(m: Any, o: Any, x: Any) -> None:
    """A step in which the second rank alone has a gradient that is not finite."""
    o.zero_grad()
    own = x[dist.get_rank() : dist.get_rank() + 1]
    loss = (m.cut.to_local() * own).sum() + m.whole.to_local().sum()
    o.scaler.scale(loss).backward()
    o.scaler.step(o)
    o.scaler.update()


def scaled(m: Any) -> Any:
    made = torch.optim.SGD(m.parameters(), lr=0.1)
    made.scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    return made


def states_of(*names: str) -> dict[str, gloo.Bits]:
    model = Parts(*names)
    optimizer = scaled(model)
    step(model, optimizer, X)
    return {"whole": gloo.bits(model.whole), "scaler.scale": gloo.bits(optimizer.scaler._scale)}


@pytest.mark.parametrize(("names", "skips_together"), [(("cut", "whole"), True), (("whole", "cut"), False)])
def test_as_real_ranks(names: tuple[str, str], skips_together: bool) -> None:
    first, second = gloo.run(2, states_of, *names)
    assert (first == second) is skips_together
    proof = bridge.trace_step(step, lambda: Parts(*names), scaled, X, replicas=2, equal=["x"]).prove()
    assert proof.ok is skips_together
    if not skips_together:
        assert {"whole", "scaler.scale"} <= {each.path for each in proof.drifting}
