"""Sharded steps beyond layers: sequences and experts over ranks, updates of whole matrices, averages of shards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.distributed._functional_collectives as functional  # noqa: E402
import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402
from torch.distributed._composable.replicate_with_fsdp import replicate  # noqa: E402
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor  # noqa: E402
from torch.distributed.tensor.experimental import implicit_replication, local_map  # noqa: E402
from torch.distributed.tensor.parallel import parallelize_module  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from tests_py.bridge.torch import models  # noqa: E402
from tests_py.bridge.torch.sharded.forms import Form, Net, accumulating, mesh_of, net, then  # noqa: E402
from tests_py.bridge.torch.sharded.parallel_forms import (  # noqa: E402
    ALIKE,
    PLAN,
    ByHand,
    alike,
    block,
    even,
    in_pairs,
    over,
    pairs,
    parallel,
    sequence_plan,
    sharded_parallel,
    tokens,
)
from tests_py.bridge.torch.traced.test_steps import adamw, sgd  # noqa: E402

_gathered: Any = getattr(functional, "all_gather_single_autograd", None)  # its name in new versions
if _gathered is None:
    _gathered = functional.all_gather_tensor_autograd


class Attention(nn.Module):
    """Attention over a sequence of which each rank has a part."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(12, 8), nn.Linear(8, 12)
        self.query, self.key, self.value = (nn.Linear(8, 8, bias=False) for _ in range(3))

    def forward(self, tokens: Any) -> Any:
        x = self.words(tokens)
        parts = [each(x).unflatten(-1, (2, 4)) for each in (self.query, self.key, self.value)]
        return self.head(x + self.attended(*parts).flatten(2))

    def attended(self, query: Any, key: Any, value: Any) -> Any:
        raise NotImplementedError


class Gathered(Attention):
    """Keys and values of all ranks are gathered."""

    def attended(self, query: Any, key: Any, value: Any) -> Any:
        length, world = query.shape[1], dist.get_world_size()
        group = models.world()
        query = query.transpose(1, 2)
        key, value = (_gathered(each.transpose(1, 2).contiguous(), 2, group) for each in (key, value))
        own = torch.arange(length) + dist.get_rank() * length
        mask = own[:, None] >= torch.arange(world * length)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask).transpose(1, 2)


class Exchanged(Attention):
    """Ranks exchange parts of the sequence for heads, and back."""

    def attended(self, query: Any, key: Any, value: Any) -> Any:
        query, key, value = (_exchanged(each, 2, 1).transpose(1, 2) for each in (query, key, value))
        made = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return _exchanged(made.transpose(1, 2), 1, 2)


def _exchanged(x: Any, split: int, joined: int) -> Any:
    world = dist.get_world_size()
    parts = torch.stack(x.chunk(world, split)).contiguous()
    made = functional.all_to_all_single_autograd(parts, [1] * world, [1] * world, models.world())
    return torch.cat(made.unbind(0), joined)


def part_of_sequence(rank: int) -> Any:
    return tuple(each.chunk(2, 1)[rank].contiguous() for each in tokens(0))


def words(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    """Gradients are averaged by hand over all ranks, or over those of ``model.data``."""
    optimizer.zero_grad()
    F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
    for p in model.parameters():
        grad = p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad
        dist.all_reduce(grad, dist.ReduceOp.AVG, group=getattr(model, "data", None))
    optimizer.step()


def pairs_of_layers() -> Any:
    mesh = over(2, 2)
    made: Any = parallelize_module(block(), mesh["tensor"], PLAN)
    made.data = mesh["data"].get_group()
    return made


def checkpointed(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    optimizer.zero_grad()
    F.cross_entropy(checkpoint(model, x, use_reentrant=False).flatten(0, 1), y.flatten()).backward()
    optimizer.step()


def accumulated(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    optimizer.zero_grad()
    for i in range(2):
        model.set_requires_gradient_sync(i == 1)
        F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
    optimizer.step()


def norm_of_whole(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    optimizer.zero_grad()
    F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
    grads = [p.grad for p in model.parameters()]
    whole = [g.full_tensor() if isinstance(g, DTensor) else g for g in grads]
    norm = torch.stack([each.square().sum() for each in whole]).sum().sqrt()
    for grad in grads:
        grad.mul_((0.1 / (norm + 1e-6)).clamp(max=1.0))
    optimizer.step()


def mapped(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    optimizer.zero_grad()
    whole, split = [Replicate()], [Shard(0)]
    columns: Any = local_map(
        lambda a, w: a @ w.t(), [Shard(1)], in_placements=(whole, split), device_mesh=model.mesh
    )
    hidden = columns(DTensor.from_local(x, model.mesh, whole), model.first)
    made = hidden.redistribute(placements=whole).to_local()
    (F.cross_entropy(made[:, :4], y) + model.second.full_tensor().square().mean()).backward()
    optimizer.step()


def implicit(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    """Plain tensors stand for replicated ones."""
    optimizer.zero_grad()
    with implicit_replication():
        hidden = (x @ model.first.t()).full_tensor()
        (F.cross_entropy(hidden[:, :4], y) + model.second.square().sum().full_tensor()).backward()
    optimizer.step()


def weight_in_loss(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    """A shard is used beside the module, and has two gradients."""
    optimizer.zero_grad()
    weight = model.inner[0][0].weight
    (F.cross_entropy(model(x), y) + 0.01 * weight.square().sum().full_tensor()).backward()
    optimizer.step()


def orthogonal(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    """Updates of whole matrices as Muon makes them."""
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    with torch.no_grad():
        for p in model.parameters():
            update = p.grad.full_tensor()
            if update.ndim == 2:
                update = update / (update.norm() + 1e-7)
                for _ in range(2):
                    update = 1.5 * update - 0.5 * (update @ update.t() @ update)
            p.sub_(0.1 * distribute_tensor(update, p.device_mesh, p.placements))


def averaging(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    models.plain_step(model, optimizer, x, y)
    with torch.no_grad():
        for name, p in list(model.named_parameters()):
            getattr(model, f"mean_{name.replace('.', '_')}").lerp_(p, 0.1)


def averages(model: Any) -> None:
    for name, p in list(model.named_parameters()):
        model.register_buffer(f"mean_{name.replace('.', '_')}", p.detach().clone())


def updating_in_backward(model: Any) -> None:
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(_update)


def _update(p: Any) -> None:
    with torch.no_grad():
        p.sub_(0.1 * p.grad)
    p.grad = None


def backward_alone(model: Any, _optimizer: Any, x: Any, y: Any) -> None:
    F.cross_entropy(model(x), y).backward()


def replicated() -> Any:
    made, mesh = models.seeded(Net()), over(2)
    for layer in made.inner:
        replicate(layer, mesh=mesh)
    return replicate(made, mesh=mesh)


def grouped() -> Any:
    """Two layers in one group."""
    made, mesh = models.seeded(Net()), mesh_of(2)
    fully_shard(list(made.inner), mesh=mesh)
    return fully_shard(made, mesh=mesh)


def _alike(model: Callable[[], Any], step: Any, batch: Any = alike) -> Form:
    return Form(model, adamw(), step, batch=batch, options=ALIKE)


FORMS: dict[str, Form] = {
    "keys gathered": Form(lambda: models.seeded(Gathered()), sgd, words, batch=part_of_sequence),
    "heads exchanged": Form(lambda: models.seeded(Exchanged()), sgd, words, batch=part_of_sequence),
    "layers of pairs": Form(pairs_of_layers, adamw(), words, 4, in_pairs, {"groups": pairs(4)}),
    "layers checkpointed": _alike(parallel(sequence_plan), checkpointed),
    "layers and shards accumulated": Form(
        sharded_parallel(2, 2, plan=sequence_plan), adamw(), accumulated, 4, in_pairs, {"groups": pairs(4)}
    ),
    "norm of the whole": _alike(parallel(), norm_of_whole),
    "local_map": _alike(ByHand, mapped, even),
    "implicit_replication": _alike(ByHand, implicit, even),
    "weight in the loss": Form(net(), step=weight_in_loss),
    "updates of whole matrices": Form(net(), sgd, orthogonal),
    "averages of shards": Form(then(net(), averages), step=averaging),
    "updates in the backward pass": Form(then(net(), updating_in_backward), step=backward_alone),
    "replicate": Form(replicated, adamw(), accumulating(a="set_requires_gradient_sync")),
    "layers in one group": Form(grouped),
}


def pinned() -> Any:
    return net(offload_policy=CPUOffloadPolicy())()
