"""Optimisers of ``popsr.sr.torch`` on ranks, beside the same ones of one process: programs for ``gloo.run``."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from tests_py.bridge.torch import gloo

__all__ = ["OPTIMISERS", "laid_out_by_torch", "misnumbered", "refused", "stepped_apart", "trained_apart"]

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
    "Adafactor": ("Adafactor", {"weight_decay": 0.1}),
    "Adafactor, float8": ("Adafactor", {"dtype": "float8_e5m2"}),
    "Muon": ("Muon", {"moments": "bfloat16"}),
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
    from popsr.sr._torch.parts import part_of

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
            offset = part_of("test", p).offset
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


def weights(what: str) -> list[Any]:
    import torch

    name, options = OPTIMISERS[what]
    dtype = getattr(torch, options.get("dtype", "bfloat16"))
    shapes = [shape for shape in SHAPES if name != "Muon" or len(shape) == 2]
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def gradients(params: Iterable[Any], step: int) -> list[Any]:
    import torch

    generator = torch.Generator().manual_seed(100 + step)
    return [torch.randn(tuple(p.shape), generator=generator).to(p.dtype) for p in params]


def made(what: str, params: list[Any]) -> Any:
    import torch

    import popsr.sr.torch as st

    name, options = OPTIMISERS[what]
    options = {"lr": 0.01, "seed": 5, **options}
    options.pop("dtype", None)
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

    references = {what: stepped_whole(what) for what in OPTIMISERS}
    wrong = []
    meshes = {
        sizes: init_device_mesh("cpu", sizes) for sizes in dict.fromkeys(sizes for sizes, _ in layouts(world))
    }
    for k, (sizes, placements) in enumerate(layouts(world)):
        mesh = meshes[sizes]
        for what in list(OPTIMISERS)[k % share :: share]:
            if is_refused(what, placements):
                continue
            shapes = [tuple(x.shape) for x in weights(what)]
            places = [fitted(placements, len(shape)) for shape in shapes]
            parts = [positions(shape, mesh, each) for shape, each in zip(shapes, places, strict=True)]
            starts = zip(weights(what), parts, places, strict=True)
            params = [torch.nn.Parameter(of_part(x, part, mesh, each)) for x, part, each in starts]
            optimiser = made(what, params)
            for step in range(3):
                rows = zip(params, gradients(params, step), parts, places, strict=True)
                for p, grad, part, each in rows:
                    p.grad = of_part(grad, part, mesh, each)
                optimiser.step()
            for p, q, part in zip(params, references[what].param_groups[0]["params"], parts, strict=True):
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
                    if a.shape != b.shape
                    or difference(a.to_local(), b.detach().reshape(-1)[part] if b.shape == p.shape else b)
                ]
    return wrong


def is_refused(what: str, placements: tuple[Any, ...]) -> bool:
    """torch itself gathers these parts in another order."""
    strided = [each for each in placements if type(each).__name__ == "_StridedShard"]
    return len(strided) > 1 and OPTIMISERS[what][0] in ("Adafactor", "Muon")


def stepped_whole(what: str) -> Any:
    """The optimiser of one process after its steps."""
    import torch

    params = [torch.nn.Parameter(x) for x in weights(what)]
    optimiser = made(what, params)
    for step in range(3):
        for p, grad in zip(params, gradients(params, step), strict=True):
            p.grad = grad
        optimiser.step()
    return optimiser


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


def laid_out_by_torch(what: str) -> list[str]:
    """Weights of layers cut by tensor parallelism and ``fully_shard`` that differ from those of one process."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    alone, net = model(), model()
    mesh: Any = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    parallelize_module(net, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(net, mesh=mesh["data"])
    optimisers = made(what, list(alone.parameters())), made(what, list(net.parameters()))
    pairs = list(zip(alone.parameters(), net.parameters(), strict=True))
    for step in range(3):
        for (p, q), grad in zip(pairs, gradients(alone.parameters(), step), strict=True):
            p.grad = grad
            part = positions(tuple(p.shape), q.device_mesh, tuple(q.placements))
            q.grad = of_part(grad, part, q.device_mesh, tuple(q.placements))
        for optimiser in optimisers:
            optimiser.step()
    names = dict(net.named_parameters())
    return [name for name, (p, q) in zip(names, pairs, strict=True) if difference(p, q.full_tensor())]


def refused(kind: str) -> dict[str, str]:
    """Errors of layouts that are not stepped."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    import popsr.sr.torch as st

    def laid_out(mesh: Any, placement: Any, rows: int = 2) -> Any:
        return DTensor.from_local(torch.ones(rows, 2), mesh, [placement], run_check=False)

    from torch.distributed.tensor.placement_types import _StridedShard

    mesh, other = init_device_mesh("cpu", (2,)), init_device_mesh("cpu", (1,))
    uneven = DTensor.from_local(
        torch.ones(2, 2), mesh, [Shard(0)], run_check=False, shape=torch.Size([6, 2]), stride=(2, 1)
    )
    crossing = _StridedShard(0, split_factor=2)
    square: Any = init_device_mesh("cpu", (2, 1))
    crossed = DTensor.from_local(
        torch.ones(2, 2),
        square,
        [crossing, crossing],
        run_check=False,
        shape=torch.Size([4, 2]),
        stride=(2, 1),
    )
    cases = {
        "another gradient": (laid_out(mesh, Shard(0)), laid_out(mesh, Replicate(), 4), None),
        "a local gradient": (laid_out(mesh, Shard(0)), torch.ones(4, 2), None),
        "another mesh": (laid_out(mesh, Replicate()), laid_out(other, Replicate()), None),
        "parts of a sum": (laid_out(mesh, Partial()), laid_out(mesh, Partial()), None),
        "another state": (laid_out(mesh, Shard(0)), laid_out(mesh, Shard(0)), laid_out(mesh, Shard(1))),
        "another order": (crossed, crossed.detach().clone(), None),
        "another part": (uneven, uneven.detach().clone(), None),
    }
    found = {}
    for what, (w, grad, state) in cases.items():
        p = torch.nn.Parameter(w)
        optimiser = getattr(st, kind)([p], seed=1)
        p.grad = grad
        if state is not None:
            optimiser.state[p].update(step=1, exp_avg=state, exp_avg_sq=state)
        try:
            optimiser.step()
        except TypeError as error:
            found[what] = str(error)
    return found
