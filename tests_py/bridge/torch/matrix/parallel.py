"""Kinds of parallelism: how each wraps a model, runs its passes and reduces its gradients."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: E402
from torch.distributed.tensor import (  # noqa: E402
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from torch.distributed.tensor.parallel import ParallelStyle, parallelize_module  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from tests_py.bridge.torch.matrix.models import Model  # noqa: E402

__all__ = ["PARALLEL", "Parallel", "module_of"]

Passes = Callable[[Any, Callable[[Any, int, int], Any]], Any]
"""Run the passes of a step: of a model and a function of what is called, a part of the batch and their number."""


def _once(model: Any, passes: Callable[[Any, int, int], Any]) -> Any:
    return passes(model, 0, 1)


def _nothing(_model: Any, _kind: Model) -> None:
    return None


@dataclass(frozen=True)
class Parallel:
    """A kind of parallelism.

    Attributes:
        world: number of ranks.
        wrap: wraps a new module.
        passes: forward and backward passes of a step.
        reduce: what is done with the gradients then.
        shared: number of ranks next to each other that have the same batch.
        forgotten: passes and reduction with one of them left out; None where nothing is written by hand.
    """

    world: int
    wrap: Callable[[Any, Model], Any]
    passes: Passes = _once
    reduce: Callable[[Any, Model], None] = _nothing
    shared: int = 1
    forgotten: tuple[Passes, Callable[[Any, Model], None]] | None = None

    @property
    def shards(self) -> bool:
        """True if its parameters are DTensors."""
        return self.wrap is not _plain and self.wrap is not _ddp


def _plain(model: Any, _kind: Model) -> Any:
    return model


def module_of(model: Any) -> Any:
    """The module of the user in a wrapper of ``DistributedDataParallel``."""
    return model.module if isinstance(model, DistributedDataParallel) else model


def _is_owned(name: str, kind: Model) -> bool:
    return name.startswith(kind.owned) if kind.owned else False


def _by_hand(model: Any, kind: Model, first: int = 0) -> None:
    """The mean of each gradient."""
    for number, (name, p) in enumerate(model.named_parameters()):
        if _is_owned(name, kind):
            p.grad.div_(dist.get_world_size())
        elif number >= first:
            dist.all_reduce(p.grad, dist.ReduceOp.AVG)


def _without_first(model: Any, kind: Model) -> None:
    _by_hand(model, kind, 1)


def _ddp(model: Any, kind: Model) -> Any:
    ignored = [name for name, _ in model.named_parameters() if _is_owned(name, kind)]
    if ignored:
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ignored)
    return DistributedDataParallel(model)


def _of_module(model: Any, passes: Callable[[Any, int, int], Any]) -> Any:
    """Forget the wrapper."""
    return passes(model.module, 0, 1)


def _no_sync(model: Any, passes: Callable[[Any, int, int], Any]) -> Any:
    with model.no_sync():
        passes(model, 0, 2)
    return passes(model, 1, 2)


def _only_no_sync(model: Any, passes: Callable[[Any, int, int], Any]) -> Any:
    with model.no_sync():
        passes(model, 0, 2)
        return passes(model, 1, 2)


def _sharded(*shape: int, nested: bool = True, **options: Any) -> Callable[[Any, Model], Any]:
    def wrap(model: Any, kind: Model) -> Any:
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("repeat", "shard")[2 - len(shape) :])
        return _on(model, kind, mesh, nested, **options)

    return wrap


def _on(model: Any, kind: Model, mesh: Any, nested: bool = True, **options: Any) -> Any:
    inner = {key: each for key, each in options.items() if key != "mp_policy"}
    if "mp_policy" in options:
        inner["mp_policy"] = dataclasses.replace(options["mp_policy"], output_dtype=None)
    for layer in model.modules() if "mp_policy" in options else ():
        if isinstance(layer, nn.BatchNorm2d):  # in float32, as its buffers
            fully_shard(layer, mesh=mesh)
    for part in kind.parts if nested else ():
        fully_shard(model.get_submodule(part), mesh=mesh, **inner)
    ignored = {p for name, p in model.named_parameters() if _is_owned(name, kind)}
    given: dict[str, Any] = options | ({"ignored_params": ignored} if ignored else {})
    return fully_shard(model, mesh=mesh, **given)


def _deferred(model: Any, passes: Callable[[Any, int, int], Any]) -> Any:
    model.set_requires_gradient_sync(False)
    passes(model, 0, 2)
    model.set_requires_gradient_sync(True)
    return passes(model, 1, 2)


class Whole(ParallelStyle):
    """Parameters on all ranks as DTensors, as torchtitan has them in layers that are not cut."""

    def _apply(self, module: Any, device_mesh: Any) -> Any:
        return distribute_module(module, device_mesh, None, self._enter, self._leave)

    @staticmethod
    def _enter(_module: Any, inputs: Any, mesh: Any) -> Any:
        first, *rest = inputs
        if not isinstance(first, DTensor):
            first = DTensor.from_local(first, mesh, [Replicate()], run_check=False)
        return (first, *rest)

    @staticmethod
    def _leave(_module: Any, made: Any, _mesh: Any) -> Any:
        return made.to_local() if isinstance(made, DTensor) else made


def _cut(model: Any, kind: Model, mesh: Any, sequence: bool = False) -> Any:
    """Tensor parallelism; layers without a style are on all ranks."""
    plan = (kind.sequence if sequence and kind.sequence else kind.tensor)()
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear | nn.LayerNorm | nn.Embedding) and not _is_owned(name, kind):
            plan.setdefault(name, Whole())
    parallelize_module(model, mesh, plan)
    if hasattr(model, "places"):
        model.head.weight = model.tokens.weight
    if hasattr(model, "mesh"):
        model.mesh = mesh
    return model


def _tensor(sequence: bool = False) -> Callable[[Any, Model], Any]:
    def wrap(model: Any, kind: Model) -> Any:
        return _cut(model, kind, init_device_mesh("cpu", (2,)), sequence)

    return wrap


def _sharded_tensor(model: Any, kind: Model) -> Any:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    return _on(_cut(model, kind, mesh["tensor"]), kind, mesh["data"])


def _simple(model: Any, kind: Model) -> Any:
    """Shards that the forward pass gathers, as DTensors: sharding without a wrapper."""
    mesh = init_device_mesh("cpu", (2,))
    made: dict[Any, Any] = {}
    for name, p in list(model.named_parameters(remove_duplicate=False)):
        if not _is_owned(name, kind):
            if p not in made:
                made[p] = nn.Parameter(distribute_tensor(p.detach(), mesh, [Shard(0)]))
            home, _, last = name.rpartition(".")
            setattr(model.get_submodule(home), last, made[p])
    return model


def _gathered(model: Any, passes: Callable[[Any, int, int], Any]) -> Any:
    whole = {
        name: p.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial("avg")])
        for name, p in model.named_parameters()
        if isinstance(p, DTensor)
    }
    return passes(lambda x: torch.func.functional_call(model, whole, (x,)), 0, 1)


_NARROW = MixedPrecisionPolicy(torch.bfloat16, torch.float32, output_dtype=torch.float32)

PARALLEL: dict[str, Parallel] = {
    "`all_reduce` by hand": Parallel(2, _plain, reduce=_by_hand, forgotten=(_once, _without_first)),
    "`DistributedDataParallel`": Parallel(2, _ddp, forgotten=(_of_module, _nothing)),
    "DDP, `no_sync`": Parallel(2, _ddp, _no_sync, forgotten=(_only_no_sync, _nothing)),
    "`fully_shard`, one": Parallel(2, _sharded(2, nested=False)),
    "`fully_shard`, nested": Parallel(4, _sharded(4)),
    "`fully_shard`, kept after forward": Parallel(2, _sharded(2, reshard_after_forward=False)),
    "`fully_shard`, bf16": Parallel(2, _sharded(2, mp_policy=_NARROW)),
    "`fully_shard`, accumulation": Parallel(2, _sharded(2), _deferred),
    "HSDP": Parallel(4, _sharded(2, 2)),
    "`parallelize_module`": Parallel(2, _tensor(), shared=2),
    "sequence parallel": Parallel(2, _tensor(True), shared=2),
    "`fully_shard` × tensor parallel": Parallel(4, _sharded_tensor, shared=2),
    "DTensor by hand": Parallel(2, _simple, _gathered),
}
"""Kinds of parallelism by name."""
