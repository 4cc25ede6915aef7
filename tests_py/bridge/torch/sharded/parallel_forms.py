"""Ways in which people use DTensor: tensor parallelism in all styles, beside and below ``fully_shard``, and by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import (  # noqa: E402
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from torch.distributed.tensor.parallel import (  # noqa: E402
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from tests_py.bridge.torch import models  # noqa: E402
from tests_py.bridge.torch.sharded.forms import BF16, Form  # noqa: E402
from tests_py.bridge.torch.traced.test_steps import adamw, sgd  # noqa: E402

ADAMW = adamw()
ALIKE = {"equal": ["x", "y"]}


class Block(nn.Module):
    """A block of a transformer, with words before and after it."""

    def __init__(self, words: int = 12, width: int = 8, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.words = nn.Embedding(words, width)
        self.before, self.between, self.after = (nn.LayerNorm(width) for _ in range(3))
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = nn.Linear(width, words, bias=False)

    def attended(self, x: Any) -> Any:
        parts = [
            each(x).unflatten(-1, (-1, 2)).transpose(1, 2) for each in (self.query, self.key, self.value)
        ]
        query, key, value = parts
        made = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(made.transpose(1, 2).flatten(2))

    def forward(self, tokens: Any) -> Any:
        x = self.words(tokens)
        x = x + self.attended(self.before(x))
        x = x + self.down(F.gelu(self.up(self.between(x))))
        return self.head(self.after(x))


def block() -> Any:
    return models.seeded(Block())


PLAN: dict[str, Any] = {
    **dict.fromkeys(("query", "key", "value", "up"), ColwiseParallel()),
    **dict.fromkeys(("out", "down"), RowwiseParallel()),
}


def sequence_plan() -> dict[str, Any]:
    """The plan of torchtitan: activations between the layers are split along the sequence."""
    split, whole = Shard(1), Replicate()
    columns = ColwiseParallel(input_layouts=split)
    return {
        "words": RowwiseParallel(input_layouts=whole, output_layouts=split),
        **dict.fromkeys(("before", "between", "after"), SequenceParallel()),
        **dict.fromkeys(("query", "key", "value", "up"), columns),
        **dict.fromkeys(("out", "down"), RowwiseParallel(output_layouts=split)),
        "head": ColwiseParallel(input_layouts=split, output_layouts=whole),
    }


def loss_plan() -> dict[str, Any]:
    head = ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False)
    return sequence_plan() | {"head": head}


def words_plan() -> dict[str, Any]:
    """Columns of the words and of the last layer."""
    return PLAN | {
        "words": ColwiseParallel(output_layouts=Replicate()),
        "head": ColwiseParallel(output_layouts=Replicate()),
    }


def over(*shape: int) -> Any:
    names = ("repeat", "data", "tensor")[3 - len(shape) :]
    return init_device_mesh("cpu", shape, mesh_dim_names=names)


def parallel(
    plan: Callable[[], dict[str, Any]] = lambda: PLAN, make: Callable[[], Any] = block, size: int = 2
) -> Callable[[], Any]:
    """All ranks split the layers."""
    return lambda: parallelize_module(make(), over(size), plan())


def sharded_parallel(
    *shape: int,
    plan: Callable[[], dict[str, Any]] = lambda: PLAN,
    make: Callable[[], Any] = block,
    **options: Any,
) -> Callable[[], Any]:
    """The shape of torchtitan: layers split over the last axis, and everything sharded over those before it."""

    def model() -> Any:
        mesh = over(*shape)
        made: Any = parallelize_module(make(), mesh["tensor"], plan())
        data = mesh["repeat", "data"] if len(shape) == 3 else mesh["data"]
        for layer in (made.up, made.down) if make is block else ():
            fully_shard(layer, mesh=data, **options)
        return fully_shard(made, mesh=data, **options)

    return model


def words(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
    loss.backward()
    optimizer.step()
    return loss


def words_of_parts(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    """Each rank has the loss of a part of the words."""
    optimizer.zero_grad()
    with loss_parallel():
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
    optimizer.step()
    return loss


def words_clipped_step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    optimizer.zero_grad()
    F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def tokens(rank: int) -> Any:
    generator = torch.Generator().manual_seed(rank)
    drawn = torch.randint(0, 12, (2, 9), generator=generator)
    return drawn[:, :-1].clone(), drawn[:, 1:].clone()


def even(_rank: int) -> Any:
    x, y = models.labelled(0)
    return x[:4], y[:4]


def alike(_rank: int) -> Any:
    return tokens(0)


def in_pairs(rank: int) -> Any:
    return tokens(rank // 2)


def _optimizer(kind: str, **options: Any) -> Callable[[Any], Any]:
    return lambda model: getattr(torch.optim, kind)(model.parameters(), lr=0.01, **options)


def form(model: Any, optimizer: Any = sgd, step: Any = words, **more: Any) -> Form:
    given: dict[str, Any] = {"batch": alike, "options": ALIKE, **more}
    return Form(model, optimizer, step, **given)


def pairs(world: int) -> dict[str, Any]:
    """Groups of data that two ranks after the other share."""
    return {"[xy]": [[rank, rank + 1] for rank in range(0, world, 2)]}


def titan(
    *shape: int, optimizer: Any = ADAMW, step: Any = words, tolerance: float = 2e-5, **options: Any
) -> Form:
    """Pairs of ranks, which split the layers, have one batch."""
    world = math.prod(shape)
    model = sharded_parallel(*shape, **options)
    return Form(model, optimizer, step, world, in_pairs, {"groups": pairs(world)}, tolerance)


class Prepared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return self.second(F.relu(self.first(x)))


def prepared() -> Any:
    """Inputs and outputs of a part are put where it needs them."""
    mesh, made = over(2), models.seeded(Prepared())
    made.second = nn.Sequential(made.second)
    plan: dict[str, Any] = {
        "first": ColwiseParallel(use_local_output=False, output_layouts=Shard(-1)),
        "second": PrepareModuleInput(input_layouts=Shard(-1), desired_input_layouts=Shard(-1)),
        "second.0": RowwiseParallel(output_layouts=Shard(0), use_local_output=False),
    }
    made = parallelize_module(made, mesh, plan)
    return parallelize_module(
        made, mesh, PrepareModuleOutput(output_layouts=Shard(0), desired_output_layouts=Replicate())
    )


def prepared_both() -> Any:
    mesh, made = over(2), models.seeded(Prepared())
    plan = PrepareModuleInputOutput(
        input_layouts=Replicate(),
        desired_input_layouts=Replicate(),
        output_layouts=Replicate(),
        desired_output_layouts=Replicate(),
    )
    made = distribute_module(made, mesh)
    return parallelize_module(made, mesh, plan)


def cut(name: str, module: Any, mesh: Any) -> None:
    for key, p in module.named_parameters(recurse=False):
        placement = Shard(0) if name == "first" else Replicate()
        module.register_parameter(key, nn.Parameter(distribute_tensor(p, mesh, [placement])))


def distributed() -> Any:
    """``distribute_module`` with functions of the user, over batches in parts."""
    mesh = over(2)
    distribute: Any = distribute_module
    return distribute(
        models.mlp(),
        mesh,
        cut,
        lambda _m, args, d: tuple(DTensor.from_local(x, d, [Shard(0)]) for x in args),
        lambda _m, out, _d: out.full_tensor(),
    )


def of_parts(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss


class ByHand(nn.Module):
    """Weights as DTensors, of which the step redistributes what it needs."""

    def __init__(self) -> None:
        super().__init__()
        self.mesh = over(2)
        plain = models.mlp()
        self.first = nn.Parameter(distribute_tensor(plain.first.weight.detach(), self.mesh, [Shard(0)]))
        self.second = nn.Parameter(distribute_tensor(plain.second.weight.detach(), self.mesh, [Shard(1)]))

    def forward(self, x: Any) -> Any:
        hidden: Any = F.relu(DTensor.from_local(x, self.mesh, [Replicate()]) @ self.first.t())
        hidden = hidden.redistribute(placements=[Replicate()]).redistribute(placements=[Shard(1)])
        second: Any = self.second
        part = hidden.to_local() @ second.to_local().t()
        return DTensor.from_local(part, self.mesh, [Partial()]).full_tensor()


CLIP = words_clipped_step
FORMS: dict[str, Form] = {
    "columns and rows": form(parallel()),
    "adamw": form(parallel(), adamw()),
    "adamw one by one": form(parallel(), adamw(foreach=False)),
    "adam": form(parallel(), _optimizer("Adam")),
    "rmsprop": form(parallel(), _optimizer("RMSprop")),
    "adagrad": form(parallel(), _optimizer("Adagrad")),
    "words": form(parallel(words_plan), adamw()),
    "sequence": form(parallel(sequence_plan)),
    "sequence, adamw": form(parallel(sequence_plan), adamw()),
    "sequence, adamw foreach": form(parallel(sequence_plan), adamw(foreach=True)),
    "sequence, clipped": form(parallel(sequence_plan), adamw(), CLIP),
    "loss": form(parallel(loss_plan), adamw(), words_of_parts),
    "4 ranks": form(parallel(sequence_plan, size=4), adamw(), world=4),
    "prepared": form(prepared, adamw(), models.plain_step, batch=even),
    "prepared both": form(prepared_both, adamw(), models.plain_step, batch=even),
    "distribute_module": Form(distributed, adamw(), of_parts),
    "by hand": form(ByHand, adamw(), models.plain_step, batch=even),
    "fully_shard": titan(2, 2),
    "fully_shard, sgd": titan(2, 2, optimizer=sgd),
    "fully_shard, sequence": titan(2, 2, plan=sequence_plan),
    "fully_shard, clipped": titan(2, 2, plan=sequence_plan, step=CLIP),
    "fully_shard, loss": titan(2, 2, plan=loss_plan, step=words_of_parts),
    "fully_shard, fused": titan(2, 2, plan=sequence_plan, optimizer=adamw(fused=True)),
    "fully_shard, foreach": titan(2, 2, plan=sequence_plan, optimizer=adamw(foreach=True)),
    "fully_shard, bfloat16": titan(2, 2, plan=sequence_plan, mp_policy=BF16, tolerance=0.05),
    "hybrid over tensor": titan(2, 1, 2, plan=sequence_plan),
}
