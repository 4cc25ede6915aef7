"""Training jobs of several ranks with a guard, and what goes wrong in them; each function runs on every rank."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from popsr.errors import DriftError, Error
from popsr.guard.torch import guard

__all__ = ["caught"]


def caught(name: str, *args: Any) -> Any:
    """The result of a job, or the class and text of its error with the fields of a finding."""
    try:
        return globals()[name](*args)
    except DriftError as error:
        drift = error.drift
        fields = {each: getattr(drift, each) for each in type(drift).__slots__}
        return "DriftError", str(error), fields
    except Error as error:
        return type(error).__name__, str(error)


class Model(nn.Module):
    """A parameter of each kind of layer, and buffers."""

    scale: Any

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 16)
        self.norm = nn.BatchNorm1d(16)
        self.outer = nn.Linear(16, 4)
        self.register_buffer("scale", torch.ones(3, 5))

    def forward(self, x: Any) -> Any:
        return self.outer(self.norm(self.inner(x)).relu())


def flip(tensor: Any, element: int, bit: int) -> None:
    """Flip one bit of a float32."""
    with torch.no_grad():
        local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        local.view(-1).view(torch.int32)[element] ^= (1 << bit) if bit < 31 else -(1 << 31)


def made(adam: bool = True) -> tuple[Any, Any]:
    """A model under DistributedDataParallel and its optimiser."""
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(Model())
    kind = torch.optim.AdamW if adam else torch.optim.SGD
    return model, kind(model.parameters(), lr=0.01)


def train(model: Any, optimizer: Any, steps: int, spoil: Callable[[int], None], shared: bool = False) -> None:
    """Steps on a batch of each rank's own; ``spoil`` comes after each backward pass."""
    for step in range(steps):
        torch.manual_seed(100 * step + (0 if shared else dist.get_rank()))
        optimizer.zero_grad()
        model(torch.randn(6, 8)).square().sum().backward()
        spoil(step)
        optimizer.step()


def quiet_job(every: int, **options: Any) -> Any:
    model, optimizer = made()
    with guard(model, optimizer, every=every, timeout=120, **options) as g:
        train(model, optimizer, 5, lambda _: None)
    checked = g.check()
    return bool(checked), str(checked), sorted(checked.compared), checked.left_out


def flipped(what: str, rank: int, element: int, bit: int) -> Any:
    model, optimizer = made()

    def spoil(step: int) -> None:
        if step == 3 and dist.get_rank() == rank:
            inner = model.module
            state = optimizer.state[inner.outer.weight]
            of = {"parameter": inner.outer.weight, "buffer": inner.scale, "state": state["exp_avg"]}
            flip(of[what], element, bit)

    with guard(model, optimizer, every=2, timeout=120):
        train(model, optimizer, 40, spoil)


def nan_payload() -> Any:
    model, optimizer = made()
    model.module.scale.fill_(float("nan"))
    if dist.get_rank() == 1:
        flip(model.module.scale, 7, 0)
    guard(model, optimizer, timeout=120).check()


def other_rate() -> Any:
    model, optimizer = made()
    optimizer.param_groups[0]["lr"] = 0.01 if dist.get_rank() != 3 else 0.02
    guard(model, optimizer, timeout=120).check()


def gradients_and_generators(differ: bool) -> Any:
    model, optimizer = made()
    train(model, optimizer, 1, lambda _: None)
    torch.manual_seed(dist.get_rank() if differ else 0)
    checked = guard(model, optimizer, gradients=True, rng=True, timeout=120).check()
    return [each for each in checked.compared if each.endswith(".grad") or each == "rng.cpu"]


def gradients_of_groups() -> Any:
    model, optimizer = made(adam=False)
    train(model, optimizer, 1, lambda _: None)
    flip(model.module.outer.weight.grad, dist.get_rank(), 4)
    groups = {"outer.weight": "none"}
    checked = guard(model, optimizer, gradients=True, groups=groups, timeout=120).check()
    return checked.left_out["outer.weight.grad"]


def batches(shared: bool, declared: Any = "none") -> Any:
    model, optimizer = made()
    with guard(model, optimizer, every=2, batch=declared, timeout=120):
        train(model, optimizer, 4, lambda _: None, shared=shared)
    return "agree"


def batches_in_pairs(right: bool) -> Any:
    model, optimizer = made(adam=False)
    g = guard(model, optimizer, every=1, batch="{0,1}{2,3}", timeout=120)
    g.batch(torch.full((2,), dist.get_rank() // (2 if right else 3)))
    g()
    return "agree"


def other_values() -> Any:
    model, optimizer = made()
    if dist.get_rank() == 3:
        model.module.register_buffer("more", torch.ones(2))
    guard(model, optimizer, timeout=120).check()


def values_change(on_all: bool) -> Any:
    model, optimizer = made()
    g = guard(model, optimizer, timeout=120)
    g.check()
    if on_all or dist.get_rank() == 1:
        model.module.more = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    return "more" in g.check().compared


def other_shape() -> Any:
    model, optimizer = made()
    if dist.get_rank() == 2:
        model.module.scale = torch.ones(5, 3)
    guard(model, optimizer, timeout=120).check()


def on_meta() -> Any:
    model, optimizer = made()
    if dist.get_rank() == 1:
        model.module.scale = torch.ones(3, 5, device="meta")
    guard(model, optimizer, timeout=120).check()


def other_steps() -> Any:
    model, optimizer = made()
    g = guard(model, optimizer, every=5, timeout=120)
    for _ in range(4 if dist.get_rank() else 3):
        g()
    g.check()


def skipped() -> Any:
    model, optimizer = made()
    pair, _ = dist.new_subgroups(2)
    if dist.get_rank() < 2:  # the others have one guard less
        guard(model, group=pair)
    g = guard(model, optimizer, timeout=15)
    g.check()
    dist.barrier()
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == 2:
        store.wait(["failed 0", "failed 1", "failed 3"])
        return "did not check"
    try:
        return g.check()
    finally:
        store.set(f"failed {dist.get_rank()}", "")


def dies() -> Any:
    import os

    model, optimizer = made()
    g = guard(model, optimizer, timeout=120)
    g.check()
    if dist.get_rank() == 2:
        os._exit(3)
    return g.check()


def one_rank() -> Any:
    model, optimizer = made()
    group, _ = dist.new_subgroups(1)
    guard(model, optimizer, group=group)


def half_of_the_ranks(spoil: bool) -> Any:
    group, _ = dist.new_subgroups(2)
    torch.manual_seed(dist.get_rank() // 2)
    model = Model()
    if spoil and dist.get_rank() == 3:
        flip(model.scale, 0, 3)
    return str(guard(model, group=group, timeout=120).check())


def of_the_first_two() -> Any:
    return str(guard(Model(), group=dist.new_group([0, 1]), timeout=120).check())


def destroyed() -> Any:
    group, _ = dist.new_subgroups(2)
    g = guard(Model(), group=group, timeout=120)
    dist.barrier()  # gloo fails on a rank that is still connecting to one that has left
    dist.destroy_process_group(group)
    g.check()


def wrong_order(what: str) -> Any:
    model, optimizer = made()
    g = guard(model, optimizer, timeout=120)
    if what == "no optimiser":
        guard(model, timeout=120).__enter__()
    if what == "batch":
        g.batch(torch.ones(1))
    with g:
        if what == "twice":
            g.__enter__()
        g()


def warned() -> Any:
    model, optimizer = made()
    if dist.get_rank() == 0:
        flip(model.module.scale, 2, 5)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        checked = guard(model, optimizer, on_drift="warn", timeout=120).check()
    return bool(checked), [str(each.message) for each in seen if "guard" in str(each.message)]


def saved(folder: str) -> Any:
    model, optimizer = made()
    if dist.get_rank() == 0:
        flip(model.module.scale, 2, 5)
    guard(model, optimizer, on_drift="save", folder=folder, timeout=120).check()


def declared(groups: Any, spoil: int | None = None) -> Any:
    torch.manual_seed(0)
    model = Model()
    model.scale += dist.get_rank() // 2
    if dist.get_rank() == spoil:
        flip(model.scale, 14, 31)
    checked = guard(model, groups=groups, timeout=120).check()
    return sorted(checked.compared), checked.left_out


def on_mesh_axes() -> Any:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    model = Model()
    model.scale += dist.get_rank() % 2
    checked = guard(model, mesh=mesh, groups={"scale": "dp"}, timeout=120).check()
    assert "scale" in checked.compared
    flip(model.scale, dist.get_rank() // 3, 20)
    guard(model, mesh=mesh, groups={"scale": "dp"}, timeout=120).check()


def sharded(spoil: bool, names: tuple[str, ...] = ("dp", "shard")) -> Any:
    """FSDP2, with two copies of each shard if the mesh has two axes."""
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2, 2) if len(names) == 2 else (4,), mesh_dim_names=names)
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 6))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def damage(step: int) -> None:
        if spoil and step == 2 and dist.get_rank() == 3:
            flip(optimizer.state[model[2].weight]["exp_avg_sq"], 17, 30)

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with guard(model, optimizer, every=1, timeout=120) as g:
            train(model, optimizer, 4, damage)
    return sorted(g.check().compared), [str(each.message) for each in seen if "guard" in str(each.message)]


def tensor_parallel(spoil: str) -> Any:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 6))
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    with guard(model, optimizer, every=1, timeout=120) as g:
        for step in range(3):
            torch.manual_seed(step)
            optimizer.zero_grad()
            model(torch.randn(6, 8)).square().sum().backward()
            if spoil and step == 1 and dist.get_rank() == 1:
                flip({"sharded": model[0].weight, "replicated": model[2].bias}[spoil], 3, 10)
            optimizer.step()
    checked = g.check()
    return sorted(checked.compared), sorted(checked.left_out)


def partial_sum() -> Any:
    from torch.distributed.tensor import DTensor, Partial

    mesh = init_device_mesh("cpu", (4,))
    model = nn.Module()
    model.register_buffer("sum", DTensor.from_local(torch.ones(2), mesh, [Partial()]))
    guard(model, timeout=120).check()


def options(given: dict[str, Any]) -> Any:
    model, optimizer = made()
    guard(model, given.pop("optimizer", optimizer), **given)


def other_groups() -> Any:
    sets = "{0,1}{2,3}" if dist.get_rank() < 2 else "{0,2}{1,3}"
    guard(Model(), groups=sets, timeout=120).check()


def no_batch() -> Any:
    model, optimizer = made(adam=False)
    guard(model, optimizer, every=1, batch="none", timeout=120)()


def flat_shards() -> Any:
    class FullyShardedDataParallel(nn.Module):
        pass

    guard(nn.Sequential(FullyShardedDataParallel()))


def large() -> Any:
    model: Any = nn.Module()
    model.register_buffer("table", torch.zeros(2000, 1000).T[:, ::1])
    if dist.get_rank() == 1:
        model.table[999, 1400] = 1
        model.table[999, 1999] = -1
        model.table[999, 1998] = -1
    guard(model, timeout=120).check()


def proved(right: bool) -> Any:
    """A proof's states, which have a path and a partition."""
    from types import SimpleNamespace

    from popsr.replicas import Partition

    labels = [0, 0, 1, 1] if right else [0, 0, 0, 0]
    proof = SimpleNamespace(states=[SimpleNamespace(path="scale", proved=Partition.from_labels(labels))])
    return [each for each in declared(proof)[0] if each == "scale"]


def before_the_first_step(groups: dict[str, str], steps: int = 1) -> Any:
    """States of the optimiser come with its first step, so that a pattern may name them before."""
    model, optimizer = made()
    with guard(model, optimizer, every=1, groups=groups, timeout=120) as g:
        assert steps, "what no state can be named like is refused at once"
        train(model, optimizer, steps, lambda _: None)
    return sorted(g.check().compared)


def by_declared_groups(groups: dict[str, str]) -> Any:
    from popsr.bridge.audit import DeclaredGroups

    return declared(DeclaredGroups(groups))


def proved_of_another() -> Any:
    from types import SimpleNamespace

    from popsr.replicas import Partition

    state = SimpleNamespace(path="encoder.scale", proved=Partition.from_labels([0] * 4))
    return declared(SimpleNamespace(states=[state]))
