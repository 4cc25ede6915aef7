"""Steps of models in ``DistributedDataParallel`` with its options, communication hooks and places, as rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks  # noqa: E402
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: E402, N817
from torch.utils.checkpoint import checkpoint  # noqa: E402

from tests_py.bridge.torch.wrappers.wrapped import (  # noqa: E402
    OPTIONS,
    Counted,
    Inner,
    Made,
    Pair,
    Two,
    accumulated,
    averaged,
    backward_twice,
    branches,
    changed_before,
    ddp,
    evaluated_first,
    loss,
    one_branch,
    other_loss,
    plain,
    sgd,
    two_forwards,
    two_forwards_two_backwards,
    unused_output,
    updated,
)

__all__ = ["ROWS", "asks", "by_norm", "counting", "drawing", "hooked", "sized", "sliced", "untouched"]


def twice(m: Any, x: Any, y: Any) -> None:
    for each in (x, y):
        loss(m(each)).backward()


class Again(Two):
    """Computes its first layer again in the backward pass, twice."""

    def forward(self, x: Any, which: str = "") -> Any:
        x = x.requires_grad_()
        return sum(checkpoint(self.a, t, use_reentrant=True) for t in (x, 2 * x)) + self.b(x)


def once_more(m: Any, x: Any, y: Any) -> None:
    loss(m(x.clone())).backward()


def for_nothing(m: Any, x: Any, y: Any) -> None:
    """The reduction of a first static step begins at results of the wrapper, which this loss does not use."""
    m(x)
    loss(m.module(y)).backward()


def beside(m: Any, x: Any, y: Any) -> None:
    (loss(m(x)) + loss(m.module(y))).backward()


def kept_gradients(step: Callable[[Any, Any, Any], Any], **options: Any) -> Callable[[], Made]:
    def made() -> Made:
        model = DDP(Two(), **options)

        def whole(m: Any, optimizer: Any, x: Any, y: Any) -> None:
            optimizer.zero_grad(set_to_none=False)
            step(m, x, y)
            optimizer.step()

        return model, sgd(model), whole

    return made


# Communication hooks


def hooked(
    hook: Any, state: Any = None, step: Any = plain, module: Any = Two, **options: Any
) -> Callable[[], Made]:
    def made() -> Made:
        model = DDP(module(), **options)
        model.register_comm_hook(state() if callable(state) else state, hook)
        return model, sgd(model), updated(step)

    return made


def communication(hook: Any) -> Any:
    """A hook without annotations, which torch compares with its own."""
    hook.__annotations__ = {}
    return hook


def as_future(t: Any) -> Any:
    made = torch.futures.Future()
    made.set_result(t)
    return made


@communication
def untouched(_state: Any, bucket: Any) -> Any:
    return as_future(bucket.buffer())


@communication
def summed(_state: Any, bucket: Any) -> Any:
    dist.all_reduce(bucket.buffer())
    return as_future(bucket.buffer())


@communication
def weighted(state: Any, bucket: Any) -> Any:
    """A mean of signs, with a weight of the rank."""
    signs = bucket.buffer().sign() * (1 + dist.get_rank())
    work = dist.all_reduce(signs, async_op=True)
    return work.get_future().then(lambda each: each.value()[0] / state["size"])


@communication
def weighted_afterwards(_state: Any, bucket: Any) -> Any:
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda each: each.value()[0] * (1 + dist.get_rank()))


@communication
def gathered(_state: Any, bucket: Any) -> Any:
    outs = [torch.empty_like(bucket.buffer()) for _ in range(dist.get_world_size())]
    dist.all_gather(outs, bucket.buffer())
    return as_future(sum(outs) / len(outs))


def built_in(kind: str) -> Callable[[], Made]:
    def made() -> Made:
        model, kinds = DDP(Two()), vars(dist)["BuiltinCommHookType"]
        model._register_builtin_comm_hook(getattr(kinds, kind))
        return model, sgd(model), updated(plain)

    return made


# Hooks that do not treat all elements alike


def asks(what: str) -> Any:
    @communication
    def hook(_state: Any, bucket: Any) -> Any:
        return as_future(getattr(bucket, what)())

    return hook


@communication
def sliced(_state: Any, bucket: Any) -> Any:
    dist.all_reduce(bucket.buffer()[:3])
    return as_future(bucket.buffer())


@communication
def sized(_state: Any, bucket: Any) -> Any:
    if bucket.buffer().numel() > 4:
        dist.all_reduce(bucket.buffer())
    return as_future(bucket.buffer())


@communication
def by_norm(_state: Any, bucket: Any) -> Any:
    return as_future(bucket.buffer() / bucket.buffer().norm())


@communication
def counting(state: Any, bucket: Any) -> Any:
    state["calls"] += 1
    return as_future(bucket.buffer())


@communication
def drawing(_state: Any, bucket: Any) -> Any:
    return as_future(bucket.buffer() + torch.rand_like(bucket.buffer()))


# Places


def around_inner() -> Made:
    """A wrapper around a module that has a wrapper of its own."""
    model = DDP(Inner())
    return model, sgd(model), updated(plain)


def wrapped_twice() -> Made:
    model = DDP(DDP(Two()))
    return model, sgd(model), updated(plain)


def module_of_it() -> Made:
    model = DDP(Two())
    return model, sgd(model), updated(lambda m, x, y: plain(m.module, x, y))


def module_given() -> Made:
    """The step is given what is in the wrapper, whose forward pass nobody calls."""
    model = DDP(Two()).module
    return model, sgd(model), updated(plain)


def module_averaged() -> Made:
    model = DDP(Two())
    return model, sgd(model), updated(lambda m, x, y: averaged(m.module, x, y))


def seeded_apart_without_sync() -> Made:
    torch.manual_seed(dist.get_rank())
    return ddp(plain, init_sync=False)()


def shared() -> Made:
    module = Two()
    module.b.weight = module.a.weight
    model = DDP(module)
    return model, sgd(model), updated(plain)


def of_mesh() -> Made:
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    return ddp(plain, device_mesh=mesh)()


def lists() -> Made:
    """Wrappers in lists and dictionaries of a container without one of its own."""
    model = nn.ModuleList([nn.ModuleDict({"one": DDP(nn.Linear(4, 4))}), nn.Sequential(DDP(nn.Linear(4, 2)))])
    step = updated(lambda m, x, y: loss(m[1](m[0]["one"](x))).backward())
    return model, sgd(model), step


def one_of_two() -> Made:
    """The second network has no wrapper."""
    model = nn.ModuleDict({"one": DDP(nn.Linear(4, 4)), "two": nn.Linear(4, 2)})
    return model, sgd(model), updated(lambda m, x, y: loss(m["two"](m["one"](x))).backward())


def ignored_buffer() -> Made:
    module = Counted()
    module.__dict__["_ddp_params_and_buffers_to_ignore"] = ["count"]
    model = DDP(module)
    return model, sgd(model), updated(changed_before)


def normed(**options: Any) -> Callable[[], Made]:
    return ddp(plain, lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), **options)


ROWS: dict[str, Callable[[], Made]] = {
    "static": ddp(plain, static_graph=True),
    "static, one branch": ddp(one_branch, static_graph=True),
    "static, two forward passes": ddp(two_forwards, static_graph=True),
    "static, accumulated without no_sync": ddp(twice, static_graph=True),
    "static, accumulated": ddp(accumulated, static_graph=True),
    "static, two backward passes": ddp(backward_twice, static_graph=True),
    "static, two forward and backward passes": ddp(two_forwards_two_backwards, static_graph=True),
    "static, loss of the module": ddp(other_loss, static_graph=True),
    "static, evaluated first": ddp(evaluated_first, static_graph=True),
    "static, views": ddp(one_branch, static_graph=True, gradient_as_bucket_view=True),
    "static, reentrant": ddp(once_more, Again, static_graph=True),
    "static, forward pass for nothing": ddp(for_nothing, static_graph=True),
    "static, forward pass beside": ddp(beside, static_graph=True),
    "static, buffer": ddp(changed_before, Counted, static_graph=True),
    "static, hook": hooked(default_hooks.allreduce_hook, static_graph=True),
    "static, unused output": ddp(unused_output, Pair, static_graph=True),
    "accumulated without no_sync": ddp(twice),
    "views, unused ones found": ddp(branches, gradient_as_bucket_view=True, find_unused_parameters=True),
    "views, one branch": ddp(one_branch, gradient_as_bucket_view=True, find_unused_parameters=True),
    "kept gradients": kept_gradients(one_branch, find_unused_parameters=True),
    "kept gradients, views": kept_gradients(
        one_branch, find_unused_parameters=True, gradient_as_bucket_view=True
    ),
    "hook of a mean": hooked(default_hooks.allreduce_hook),
    "hook in fp16": hooked(default_hooks.fp16_compress_hook),
    "hook in fp16 around another": hooked(default_hooks.fp16_compress_wrapper(untouched)),
    "hook that does nothing": hooked(untouched),
    "hook of a sum": hooked(summed),
    "hook of weights": hooked(weighted, lambda: {"size": 2}),
    "hook of weights afterwards": hooked(weighted_afterwards),
    "hook that gathers": hooked(gathered),
    "hook, accumulated": hooked(default_hooks.allreduce_hook, step=accumulated),
    "hook, views": hooked(default_hooks.allreduce_hook, step=accumulated, gradient_as_bucket_view=True),
    "hook, unused ones found": hooked(summed, step=branches, find_unused_parameters=True),
    "hook, only one branch": hooked(summed, step=one_branch, find_unused_parameters=True),
    "built-in hook": built_in("ALLREDUCE"),
    "built-in hook in fp16": built_in("FP16_COMPRESS"),
    "around an inner wrapper": around_inner,
    "wrapped twice": wrapped_twice,
    "its module": module_of_it,
    "its module given": module_given,
    "its module, averaged by hand": module_averaged,
    "seeded apart, not synchronised": seeded_apart_without_sync,
    "shared parameters": shared,
    "of a mesh": of_mesh,
    "in lists": lists,
    "one of two": one_of_two,
    "ignored buffer": ignored_buffer,
    "batch norm, buffers not sent": normed(broadcast_buffers=False),
    "small buckets": ddp(accumulated, bucket_cap_mb=0.00001),
}
if "init_sync" not in OPTIONS:
    del ROWS["seeded apart, not synchronised"]
