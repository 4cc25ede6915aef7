"""Optimisers that round stochastically, over DTensors on processes of gloo."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import popsr.sr.torch as rounding  # noqa: E402
from popsr.errors import ArgumentTypeError  # noqa: E402
from tests_py.bridge.torch import gloo  # noqa: E402

OPTIMISERS = ("AdamW", "SGD", "Lion")


def stepped(kind: str, foreach: bool, cut: bool) -> tuple[gloo.Bits, float, dict[str, Any]]:
    """Bits and mean of this rank's part of a weight after some steps, and shapes of the state."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2,))
    places = [Shard(0) if cut else Replicate()]
    p = torch.nn.Parameter(distribute_tensor(torch.ones(4, 1024, dtype=torch.bfloat16), mesh, places))
    options = {} if kind == "Adafactor" else {"foreach": foreach}
    optimizer = getattr(rounding, kind)([p], lr=1e-4, seed=3, **options)
    for _ in range(3):
        p.grad = distribute_tensor(torch.ones(4, 1024, dtype=torch.bfloat16), mesh, places)
        optimizer.step()
    shapes = {key: tuple(getattr(t, "shape", ())) for key, t in optimizer.state[p].items()}
    return gloo.bits(p), float(p.to_local().float().mean()), shapes


@pytest.mark.parametrize("kind", OPTIMISERS)
def test_parts_draw_apart_and_replicas_alike(kind: str) -> None:
    whole = gloo.run(2, stepped, kind, True, False)
    parts = gloo.run(2, stepped, kind, True, True)
    assert whole[0] == whole[1]
    assert parts[0][0] != parts[1][0]
    assert parts == gloo.run(2, stepped, kind, False, True)
    assert parts[0][2] == whole[0][2]
    assert abs(parts[0][1] - (1 - 3e-4)) < 1e-4


def test_updates_of_whole_parameters() -> None:
    whole, parts = (gloo.run(2, stepped, "Adafactor", True, cut) for cut in (False, True))
    assert whole[0] == whole[1]
    assert parts[0][0] != parts[1][0]
    assert parts[0][2] == whole[0][2]


def without_a_seed(kind: str) -> str:
    """The error of an optimiser that this rank would seed by itself."""
    with pytest.raises(ArgumentTypeError) as caught:
        getattr(rounding, kind)([torch.nn.Parameter(torch.ones(3))])
    return str(caught.value)


@pytest.mark.parametrize("kind", ["AdamW", "Adafactor"])
def test_ranks_without_a_common_seed_are_refused(kind: str) -> None:
    """Each would round equal weights by numbers of its own."""
    found = gloo.run(2, without_a_seed, kind)
    expected = (
        f"{kind}: seed is missing in a job of 2 ranks, where weights that are equal would be rounded apart"
    )
    assert all(text.startswith(expected) for text in found)


def compiled(kind: str, dim: int) -> bool:
    """True if a compiled step of parts of a weight, cut along a dimension, has the bits of the eager one."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2,))
    made = []
    for is_compiled in (False, True):
        weight = torch.linspace(-1, 1, 12).view(4, 3).bfloat16()
        p = torch.nn.Parameter(distribute_tensor(weight, mesh, [Shard(dim)]))
        optimizer = getattr(rounding, kind)([p], lr=1e-2, seed=3)
        step = optimizer.step
        if is_compiled:
            step = torch.compile(step, backend="aot_eager", fullgraph=True)
        for _ in range(3):
            p.grad = distribute_tensor(weight * 3, mesh, [Shard(dim)])
            step()
        made.append([gloo.bits(p), *(gloo.bits(t) for t in optimizer.state[p].values())])
    return made[0] == made[1]


@pytest.mark.parametrize("dim", [0, 1])
def test_compiled_steps_of_parts(dim: int) -> None:
    assert gloo.run(2, compiled, "AdamW", dim) == [True, True]
