"""Parts that pipelines of PyTorch share: layers of a stage, messages between stages, and the step for one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from tests_py.bridge.same.planted.numbers import draw, integers
from tests_py.bridge.same.planted.torch_layers import TorchProgram, sgd

__all__ = [
    "PARTS", "ROWS", "WIDTH", "Stages", "back", "forth", "linear", "mean_over", "messages", "program",
    "without_result",
]  # fmt: skip

WIDTH, PARTS, ROWS = 3, 2, 8
messages: Any = dist
DATA_CUTS: Any = {0: (0, "data"), 1: (0, "data")}


def linear(number: int) -> Any:
    """A layer with weights of its number."""
    made = nn.Linear(WIDTH, WIDTH).double()
    for name, value in draw(40 + number, weight=(WIDTH, WIDTH), bias=(WIDTH,)).items():
        setattr(made, name, nn.Parameter(torch.from_numpy(value)))
    return made


class Stages(nn.Module):
    """Layers of a rank, under their numbers in the whole model, and its neighbours in the pipeline.

    Args:
        sizes: stages, and ranks of each; one of each on the only rank.
        count: number of layers of all stages.
        make: makes a layer of a number.
    """

    def __init__(
        self, sizes: tuple[int, int], count: int, make: Callable[[int], Any] = linear, beside: str = "data"
    ) -> None:
        """Make the layers of this rank."""
        super().__init__()
        pipe, copies = sizes if dist.get_world_size() > 1 else (1, 1)
        self.mesh = init_device_mesh("cpu", (pipe, copies), mesh_dim_names=("pipe", beside))
        self.stage, self.stages, self.copies = self.mesh.get_local_rank("pipe"), pipe, copies
        ranks = dist.get_process_group_ranks(self.mesh.get_group("pipe"))
        self.is_first, self.is_last = self.stage == 0, self.stage + 1 == pipe
        self.before, self.after = ranks[self.stage - 1], ranks[(self.stage + 1) % pipe]
        own = range(self.stage * count // pipe, (self.stage + 1) * count // pipe)
        self.layers = nn.ModuleDict({str(i): make(i) for i in own})

    def forward(self, h: Any) -> Any:
        """Run the layers of this rank."""
        for layer in self.layers.values():
            h = torch.tanh(layer(h))
        return h

    def group(self, axis: str) -> Any:
        """Ranks along an axis."""
        return self.mesh.get_group(axis)


def forth(m: Any, x: Any, forward: Any = None) -> tuple[Any, Any]:
    """The input of a stage, received from the one before, and its output, sent to the next one."""
    h = x
    if not m.is_first:
        h = torch.empty(len(x), WIDTH, dtype=torch.float64)
        dist.recv(h, m.before)
        h.requires_grad_()
    out = (forward or m)(h)
    if not m.is_last:
        dist.send(out.detach(), m.after)
    return h, out


def back(m: Any, h: Any, out: Any, loss: Any, change: Callable[[Any], Any] = lambda g: g) -> None:
    """Gradients of a stage: from its loss, or received; those of its input are sent, changed."""
    if m.is_last:
        loss.backward()
    else:
        g = torch.empty_like(out)
        dist.recv(g, m.after)
        out.backward(g)
    if not m.is_first:
        dist.send(change(h.grad), m.before)


def mean_over(m: Any, axis: str = "data") -> None:
    """Means of gradients over the copies of a stage."""
    for p in m.parameters():
        dist.all_reduce(p.grad, group=m.group(axis))
        p.grad /= m.copies


def program(
    name: str, bug: str, step: Any, make: Any, reference: Any = None, *, sizes: tuple[int, int] = (2, 1),
    optimizer: Any = sgd, labels: Any = None, tokens: int = 0, axis: str = "data", cuts: Any = None,
    equal: bool = False,
) -> TorchProgram:  # fmt: skip
    """A step on rows of a batch, of which copies of a stage have parts; without a reference beside itself."""
    x, y = draw(41, x=(ROWS, WIDTH), y=(ROWS, WIDTH)).values()
    if labels is not None:
        x, y = integers(42, tokens, ROWS).astype(np.int64), labels
    mesh = dict(zip(("pipe", axis), sizes, strict=True))
    cuts = DATA_CUTS if cuts is None else cuts
    shared = ("x", "y") if equal else ()
    return TorchProgram(step, make, optimizer, (x, y), mesh, cuts, reference, (name, bug), shared)


def without_result(step: Any) -> Any:
    """A step that returns nothing."""

    def run(m: Any, optimizer: Any, x: Any, y: Any) -> None:
        step(m, optimizer, x, y)

    return run
