"""Ways in which people shard a module with ``fully_shard``, and steps of such modules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import (  # noqa: E402
    CPUOffloadPolicy,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import Shard  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from tests_py.bridge.torch import models  # noqa: E402
from tests_py.bridge.torch.traced.test_steps import adamw, sgd  # noqa: E402

BF16 = MixedPrecisionPolicy(torch.bfloat16, torch.float32)


@dataclass(frozen=True)
class Form:
    """A module, its optimiser and a step of them on some ranks."""

    model: Callable[[], Any]
    optimizer: Callable[[Any], Any] = sgd
    step: Callable[..., Any] = models.plain_step
    world: int = 2
    batch: Callable[[int], Any] = models.labelled
    options: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 2e-5


class Net(nn.Module):
    """Two layers of one size between two others."""

    def __init__(self, wrap: Callable[[Any], Any] = lambda layer: layer) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.inner = nn.ModuleList(wrap(nn.Sequential(nn.Linear(8, 8), nn.Tanh())) for _ in range(2))
        self.second = nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        x = F.relu(self.first(x))
        for layer in self.inner:
            x = layer(x)
        return self.second(x)

    def features(self, x: Any) -> Any:
        return self.forward(x) * 2


def mesh_of(*shape: int) -> Any:
    return init_device_mesh("cpu", shape, mesh_dim_names=("repeat", "shard")[2 - len(shape) :])


def net(*shape: int, wrap: Callable[[Any], Any] = lambda layer: layer, **options: Any) -> Callable[[], Any]:
    """Each inner layer and the whole are sharded over a mesh."""

    def model() -> Any:
        made, mesh = models.seeded(Net(wrap)), mesh_of(*(shape or (dist.get_world_size(),)))
        for layer in made.inner:
            fully_shard(layer, mesh=mesh, **options)
        return fully_shard(made, mesh=mesh, **options)

    return model


def then(make: Callable[[], Any], change: Callable[[Any], Any]) -> Callable[[], Any]:
    """A module that is changed after it was made."""

    def model() -> Any:
        made = make()
        change(made)
        return made

    return model


def bare() -> Any:
    return fully_shard(models.seeded(nn.Linear(6, 4)), mesh=mesh_of(dist.get_world_size()))


def in_float() -> Any:
    """Computed in bfloat16, with results in float32."""
    made, mesh = models.seeded(Net()), mesh_of(dist.get_world_size())
    for layer in made.inner:
        fully_shard(layer, mesh=mesh, mp_policy=BF16)
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, output_dtype=torch.float32)
    return fully_shard(made, mesh=mesh, mp_policy=policy)


def narrow(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    return models.plain_step(model, optimizer, x.bfloat16(), y)


def beside_adapters() -> Any:
    """Plain parameters, whose hooks average their gradients, beside a base in shards."""

    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base, self.adapter = bare(), models.seeded(nn.Linear(6, 4))
            for p in self.adapter.parameters():
                p.register_post_accumulate_grad_hook(
                    lambda p: dist.all_reduce(p.grad.div_(dist.get_world_size())) and None
                )

        def forward(self, x: Any) -> Any:
            return self.base(x) + self.adapter(x)

    return Adapted()


def tied() -> Any:
    """A word embedding that is the last layer, too."""
    made = models.seeded(models.Gpt(words=12))
    for block in made.blocks:
        fully_shard(list(block), mesh=mesh_of(dist.get_world_size()))
    return fully_shard(made, mesh=mesh_of(dist.get_world_size()))


class Repeated(nn.Module):
    """One layer, which is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner, self.second = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return self.second(self.inner(torch.tanh(self.inner(torch.tanh(self.first(x))))))


def repeated() -> Any:
    made, mesh = models.seeded(Repeated()), mesh_of(dist.get_world_size())
    fully_shard(made.inner, mesh=mesh)
    return fully_shard(made, mesh=mesh)


def from_meta() -> Any:
    """The way of torchtitan: parameters get memory when they are shards, and values after that."""
    with torch.device("meta"):
        made = Net()
    for layer in made.inner:
        fully_shard(layer, mesh=mesh_of(dist.get_world_size()))
    fully_shard(made, mesh=mesh_of(dist.get_world_size()))
    made.to_empty(device="cpu")
    with torch.no_grad():
        for number, p in enumerate(made.parameters()):
            p.fill_(0.1 * (number + 1) / p.shape[-1])
    return made


def loaded() -> Any:
    """Parameters that are assigned anew by a state that is loaded."""
    made = net()()
    made.load_state_dict({name: p.detach() * 2 for name, p in made.state_dict().items()}, assign=True)
    return made


def axis_of_choice(p: Any) -> Any:
    return Shard(1 if p.ndim == 2 and p.shape[1] % 4 == 0 else 0)


def frozen(model: Any) -> None:
    for p in model.inner.parameters():
        p.requires_grad_(False)


def halves_frozen() -> Any:
    """Weights that are not trained beside biases that are, in one group."""
    made, mesh = models.seeded(Net()), mesh_of(dist.get_world_size())
    for layer in (*made.inner, made):
        for name, p in layer.named_parameters():
            p.requires_grad_(name.endswith("bias"))
        fully_shard(layer, mesh=mesh)
    return made


def ignoring() -> Any:
    """A parameter that stays whole, whose gradient the step averages."""
    made, mesh = models.seeded(Net()), mesh_of(dist.get_world_size())
    return fully_shard(made, mesh=mesh, ignored_params=set(made.first.parameters()))


def averaged(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    for p in model.first.parameters():
        dist.all_reduce(p.grad, dist.ReduceOp.AVG)
    optimizer.step()


def divided(model: Any) -> None:
    model.set_force_sum_reduction_for_comms(True)
    model.set_gradient_divide_factor(3.0)


def prefetching(model: Any) -> None:
    first, second = model.inner
    first.set_modules_to_forward_prefetch([second])
    second.set_modules_to_backward_prefetch([first])
    model.set_allocate_memory_from_process_group_for_comm(False)


def accumulating(**switches: str) -> Callable[..., Any]:
    """A step of three micro batches of which the last one reduces."""

    def step(model: Any, optimizer: Any, x: Any, y: Any) -> None:
        optimizer.zero_grad()
        for i in range(3):
            for name in switches.values():
                getattr(model, name)(i == 2)
            F.cross_entropy(model((i + 1) * x), y).backward()
        optimizer.step()

    return step


def clipped(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm


def norm_by_hand(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    """The way of torchtitan: the norm is of all shards, and then used as a number."""
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    norm: Any = nn.utils.get_total_norm(grads, 2.0)
    total = norm.full_tensor()
    nn.utils.clip_grads_with_norm_(model.parameters(), 0.1, total)
    optimizer.step()
    return total


def of_words(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    models.plain_step(lambda x: model(x).flatten(0, 1), optimizer, x, y.flatten())


def checkpointed(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    optimizer.zero_grad()
    F.cross_entropy(checkpoint(model, x, use_reentrant=False), y).backward()
    optimizer.step()


def gathered_early(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    handle = model.unshard(async_op=True)
    model.inner[0].unshard()
    handle.wait()
    models.plain_step(model, optimizer, x, y)
    model.inner[0].reshard()
    model.reshard()


def evaluated_between(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    with torch.no_grad():
        before = F.cross_entropy(model(x), y)
    models.plain_step(model, optimizer, x, y)
    return before


def of_parts(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    """Parts of the model are called, and never the whole; each one is a root."""
    optimizer.zero_grad()
    hidden = F.pad(x, (0, 2))
    for layer in model.inner:
        hidden = layer(hidden)
    F.cross_entropy(hidden[:, :4], y).backward()
    optimizer.step()


def other_method(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    optimizer.zero_grad()
    F.cross_entropy(model.features(x), y).backward()
    optimizer.step()


def backward_twice(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    optimizer.zero_grad()
    made = model(x)
    F.cross_entropy(made, y).backward(retain_graph=True)
    made.square().mean().backward()
    optimizer.step()


def two_updates(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    """Weights change between two forward passes."""
    models.plain_step(model, optimizer, x, y)
    models.plain_step(model, optimizer, 2 * x, y)


def kept_gathered(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    model.set_reshard_after_backward(False)
    models.plain_step(model, optimizer, x, y)
    for part in (model, *model.inner):
        part.reshard()


def zeroed_last(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()


def _optimizer(kind: str, **options: Any) -> Callable[[Any], Any]:
    return lambda model: getattr(torch.optim, kind)(model.parameters(), lr=0.01, **options)


SYNC, LAST, ALL = "set_requires_gradient_sync", "set_is_last_backward", "set_requires_all_reduce"
KEEP = "set_reshard_after_backward"

FORMS: dict[str, Form] = {
    "bare": Form(bare),
    "nested": Form(net()),
    "of 4 ranks": Form(net(), world=4),
    "of one rank": Form(net(2, 1)),
    "hybrid": Form(net(2, 2), world=4),
    "kept after forward": Form(net(reshard_after_forward=False)),
    "a part kept after forward": Form(net(reshard_after_forward=2), world=4),
    "set_reshard_after_forward": Form(then(net(), lambda m: m.set_reshard_after_forward(False))),
    "bfloat16": Form(net(mp_policy=BF16), tolerance=0.03),
    "bfloat16 reduced in it": Form(net(mp_policy=MixedPrecisionPolicy(torch.bfloat16)), tolerance=0.03),
    "bfloat16, output": Form(in_float, tolerance=0.03),
    "inputs not cast": Form(
        net(mp_policy=MixedPrecisionPolicy(torch.bfloat16, cast_forward_inputs=False)),
        step=narrow,
        tolerance=0.03,
    ),
    "float16": Form(
        net(mp_policy=MixedPrecisionPolicy(torch.float16, torch.float16)), world=4, tolerance=0.03
    ),
    "reduced in float64": Form(net(mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.float64))),
    "bfloat16, accumulating": Form(net(mp_policy=BF16), step=accumulating(a=SYNC), tolerance=0.03),
    "bfloat16, checkpointed": Form(net(mp_policy=BF16), step=checkpointed, tolerance=0.03),
    "accumulating": Form(net(), step=accumulating(a=SYNC)),
    "accumulating, last": Form(net(), step=accumulating(a=SYNC, b=LAST, c=KEEP)),
    "accumulating, last alone": Form(net(), step=accumulating(b=LAST)),
    "hybrid, accumulating": Form(net(2, 2), step=accumulating(a=ALL), world=4),
    "hybrid, accumulating both": Form(net(2, 2), step=accumulating(a=SYNC, b=ALL, c=LAST), world=4),
    "hybrid, adamw": Form(net(2, 2), adamw(), clipped, 4),
    "without unshard in backward": Form(
        then(net(reshard_after_forward=False), lambda m: m.set_unshard_in_backward(False))
    ),
    "kept gathered": Form(net(), step=kept_gathered),
    "divided": Form(then(net(), divided)),
    "sums": Form(then(net(2, 2), lambda m: m.set_force_sum_reduction_for_comms(True)), world=4),
    "unused parameters reduced": Form(
        then(net(), lambda m: m.set_reduce_scatter_unused_params(True)), step=of_parts
    ),
    "prefetching": Form(then(net(), prefetching)),
    "gathered early": Form(net(), step=gathered_early),
    "evaluated between": Form(net(), step=evaluated_between),
    "ignored parameters": Form(ignoring, step=averaged),
    "axis of choice": Form(net(shard_placement_fn=axis_of_choice)),
    "axis of choice, hybrid": Form(
        net(2, 2, shard_placement_fn=axis_of_choice, mp_policy=BF16), world=4, tolerance=0.03
    ),
    "offloaded": Form(net(offload_policy=CPUOffloadPolicy(pin_memory=False))),
    "tied": Form(tied, batch=models.tokens, step=of_words),
    "repeated": Form(repeated),
    "from meta": Form(from_meta),
    "loaded": Form(loaded),
    "frozen": Form(then(net(), frozen)),
    "half frozen": Form(
        halves_frozen,
        optimizer=lambda m: torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=0.01),
    ),
    "beside adapters": Form(beside_adapters),
    "checkpointed": Form(net(), step=checkpointed),
    "checkpoint_wrapper inside": Form(net(wrap=checkpoint_wrapper)),
    "of parts": Form(net(), step=of_parts),
    "other method": Form(
        then(net(), lambda m: register_fsdp_forward_method(m, "features")), step=other_method
    ),
    "backward twice": Form(net(), step=backward_twice),
    "two updates": Form(net(), step=two_updates),
    "zeroed last": Form(net(), adamw(), zeroed_last),
    "clipped": Form(net(), adamw(), clipped),
    "clipped by get_total_norm": Form(net(), adamw(), norm_by_hand),
    "adamw": Form(net(), adamw()),
    "adamw foreach": Form(net(), adamw(foreach=True)),
    "adamw one by one": Form(net(), adamw(foreach=False)),
    "adamw fused": Form(net(), adamw(fused=True)),
    "adamw amsgrad": Form(net(), adamw(amsgrad=True)),
    "adam": Form(net(), _optimizer("Adam")),
    "adam fused": Form(net(), _optimizer("Adam", fused=True)),
    "sgd plain": Form(net(), _optimizer("SGD")),
    "rmsprop": Form(net(), _optimizer("RMSprop", momentum=0.5)),
    "adagrad": Form(net(), _optimizer("Adagrad")),
}
