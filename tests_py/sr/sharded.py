"""Optimisers of ``popsr.sr.torch`` on ranks, beside the same ones of one process: programs for ``gloo.run``."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from tests_py.bridge.torch import gloo

__all__ = ["OPTIMISERS", "misnumbered", "stepped_apart", "trained_apart"]

OPTIMISERS: dict[str, tuple[str, dict[str, Any]]] = {
    "AdamW": ("AdamW", {}),
    "AdamW, a call each": ("AdamW", {"foreach": False}),
    "AdamW, narrow": ("AdamW", {"moments": "bfloat16"}),
    "AdamW, largest": ("AdamW", {"amsgrad": True, "moments": "bfloat16"}),
    "Adam with decay": ("Adam", {"weight_decay": 0.1}),
    "SGD": ("SGD", {"momentum": 0.9}),
    "SGD, narrow": ("SGD", {"momentum": 0.9, "moments": "bfloat16"}),
    "SGD by ones": ("SGD", {"lr": 1.0}),
    "Lion": ("Lion", {"weight_decay": 0.1}),
    "Lion, narrow": ("Lion", {"moments": "bfloat16"}),
}
SHAPES = ((7, 5), (40, 130), (1, 3), (0, 3), (6,), (3, 2, 5), (), (2, 4097))


def layouts(world: int) -> list[tuple[tuple[int, ...], tuple[Any, ...]]]:
    """Shapes of meshes with placements."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.placement_types import _StridedShard

    found: list[tuple[tuple[int, ...], tuple[Any, ...]]] = [
        ((world,), (Shard(0),)),
        ((world,), (Shard(1),)),
        ((world,), (Replicate(),)),
    ]
    if world == 4:
        each = (Replicate(), Shard(0), Shard(1), _StridedShard(0, split_factor=2))
        found += [((2, 2), pair) for pair in itertools.product(each, repeat=2)]
    return found


def positions(shape: tuple[int, ...], mesh: Any, placements: tuple[Any, ...]) -> Any:
    """torch's own answer: the numbers of this rank's elements."""
    import torch
    from torch.distributed.tensor import distribute_tensor

    whole = torch.arange(torch.Size(shape).numel()).reshape(shape)
    return distribute_tensor(whole, mesh, placements, src_data_rank=None).to_local()


def fitted(placements: tuple[Any, ...], rank: int) -> tuple[Any, ...]:
    """Placements for a tensor that may have fewer axes."""
    from torch.distributed.tensor import Replicate

    return tuple(each if each.is_replicate() or each.dim < rank else Replicate() for each in placements)


def misnumbered(world: int) -> list[str]:
    """Layouts of which this rank gives elements other numbers than torch."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor

    from popsr.sr._runs import Runs
    from popsr.sr._torch.parts import numbers_of

    wrong = []
    meshes = {
        sizes: init_device_mesh("cpu", sizes) for sizes in dict.fromkeys(sizes for sizes, _ in layouts(world))
    }
    for sizes, placements in layouts(world):
        mesh = meshes[sizes]
        for shape in SHAPES:
            places = fitted(placements, len(shape))
            expected = positions(shape, mesh, places)
            x = torch.empty(shape)
            p = DTensor.from_local(
                expected.float(), mesh, places, run_check=False, shape=x.shape, stride=x.stride()
            )
            offset = numbers_of("test", p)
            got = torch.arange(expected.numel())
            if isinstance(offset, Runs):
                begin = 0
                for end, shift in offset.table.view("int64").tolist():
                    got[begin:end] += shift
                    begin = end
            else:
                got += offset
            if got.tolist() != expected.reshape(-1).tolist():
                wrong.append(f"{shape} as {places} on {sizes}")
    return wrong


def of_part(x: Any, part: Any, mesh: Any, placements: tuple[Any, ...]) -> Any:
    """The elements of a whole tensor with these numbers, as a DTensor."""
    from torch.distributed.tensor import DTensor

    local = x.detach().reshape(-1)[part]
    return DTensor.from_local(local, mesh, placements, run_check=False, shape=x.shape, stride=x.stride())


def weights() -> list[Any]:
    import torch

    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator).bfloat16() for shape in SHAPES]


def gradients(params: Iterable[Any], step: int) -> list[Any]:
    import torch

    generator = torch.Generator().manual_seed(100 + step)
    return [torch.randn(tuple(p.shape), generator=generator).to(p.dtype) for p in params]


def made(what: str, params: list[Any]) -> Any:
    import torch

    import popsr.sr.torch as st

    name, options = OPTIMISERS[what]
    options = {"lr": 0.01, "seed": 5, **options}
    if "moments" in options:
        options["moments"] = getattr(torch, options["moments"])
    return getattr(st, name)(params, **options)


def difference(a: Any, b: Any) -> bool:
    """True if bits differ."""
    return gloo.bits(a.reshape(-1)) != gloo.bits(b.reshape(-1))


def stepped_apart(world: int, share: int) -> list[str]:
    """Weights and states that differ from those of one process with the same gradients.

    Args:
        world: number of ranks.
        share: of the optimisers each layout takes one of so many, in turn.
    """
    import torch
    from torch.distributed.device_mesh import init_device_mesh

    from popsr.sr._torch.steps import COUNTED

    wholes, references = {}, {}
    for what in OPTIMISERS:
        wholes[what] = [torch.nn.Parameter(x) for x in weights()]
        references[what] = made(what, wholes[what])
        for step in range(3):
            for p, grad in zip(wholes[what], gradients(wholes[what], step), strict=True):
                p.grad = grad
            references[what].step()
    wrong = []
    meshes = {
        sizes: init_device_mesh("cpu", sizes) for sizes in dict.fromkeys(sizes for sizes, _ in layouts(world))
    }
    for k, (sizes, placements) in enumerate(layouts(world)):
        mesh = meshes[sizes]
        places = [fitted(placements, len(shape)) for shape in SHAPES]
        parts = [positions(shape, mesh, each) for shape, each in zip(SHAPES, places, strict=True)]
        for what in list(OPTIMISERS)[k % share :: share]:
            starts = zip(weights(), parts, places, strict=True)
            params = [torch.nn.Parameter(of_part(x, part, mesh, each)) for x, part, each in starts]
            optimiser = made(what, params)
            for step in range(3):
                rows = zip(params, gradients(params, step), parts, places, strict=True)
                for p, grad, part, each in rows:
                    p.grad = of_part(grad, part, mesh, each)
                optimiser.step()
            for p, q, part in zip(params, wholes[what], parts, strict=True):
                state = references[what].state[q]
                named = {"weight": (p, q)} | {
                    key: (optimiser.state[p][key], state[key]) for key in state if key not in COUNTED
                }
                wrong += [
                    f"{what}: {key}"
                    for key in COUNTED
                    if key in state and not torch.equal(state[key], optimiser.state[p][key])
                ]
                wrong += [
                    f"{what}: {key} of {tuple(p.shape)} as {placements} on {sizes}"
                    for key, (a, b) in named.items()
                    if difference(a.to_local(), b.detach().reshape(-1)[part])
                ]
    return wrong


def model() -> Any:
    import torch

    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(6, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3)).bfloat16()


def train(net: Any, optimiser: Any, steps: Iterable[int]) -> None:
    """Steps on a batch that all ranks share, so that a mean of gradients is each of them."""
    import torch

    for step in steps:
        x = torch.randn(4, 6, generator=torch.Generator().manual_seed(step)).bfloat16()
        net(x).square().mean().backward()
        optimiser.step()
        optimiser.zero_grad()


def trained_apart(sizes: tuple[int, ...], what: str, folder: str | None, steps: tuple[int, int]) -> list[str]:
    """Weights of ``fully_shard`` that differ from those of one process.

    Args:
        sizes: of the mesh; with two axes the first has replicas.
        what: the optimiser.
        folder: of a checkpoint, which is loaded before the first of some steps that is not 0, and saved after others.
        steps: the first that is taken, and the end.
    """
    import torch
    import torch.distributed.checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    first, end = steps
    dcp: Any = torch.distributed.checkpoint
    alone = model()
    train(alone, made(what, list(alone.parameters())), range(end))
    net = model()
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("outer", "inner")[-len(sizes) :])
    for layer in (net[0], net[2], net):
        fully_shard(layer, mesh=mesh)
    optimiser = made(what, list(net.parameters()))
    if first and folder:
        saved: dict[str, Any] = dict(zip(("model", "optimiser"), get_state_dict(net, optimiser), strict=True))
        dcp.load(saved, checkpoint_id=folder)
        set_state_dict(net, optimiser, model_state_dict=saved["model"], optim_state_dict=saved["optimiser"])
    train(net, optimiser, range(first, end))
    if folder and not first:
        saved = dict(zip(("model", "optimiser"), get_state_dict(net, optimiser), strict=True))
        dcp.save(saved, checkpoint_id=folder)
    return [
        name
        for (name, p), q in zip(net.named_parameters(), alone.parameters(), strict=True)
        if difference(p.full_tensor(), q)
    ]
