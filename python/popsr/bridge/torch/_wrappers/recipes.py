"""Wrappers of modules that hook into autograd in C++, as modules that do the same in Python."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from popsr.bridge._step.replaced import replaced
from popsr.bridge.torch._states.hooks import (
    hooks_of,
    is_followed,
    other_optimizers_checked,
    references_followed,
)
from popsr.bridge.torch._user.locations import current_place, shown_place
from popsr.bridge.torch._wrappers.dtensors import check_cut, dtensors_followed
from popsr.bridge.torch._wrappers.pipelines import pipelines_followed, schedule_class
from popsr.bridge.torch._wrappers.reducer import check_replicated, replicated
from popsr.bridge.torch._wrappers.sharded import (
    check_sharded,
    is_fully_sharded,
    reductions_followed,
)
from popsr.errors import UnsupportedError

__all__ = ["check_read", "followed", "is_wrapped", "recipe_for"]

_OPTIMIZER = "an optimizer of torch.optim"
_UNREAD = {
    "FullyShardedDataParallel": "fully_shard (FSDP2) or DistributedDataParallel",
    "DDP": "DistributedDataParallel or fully_shard (FSDP2) in place of replicate()",
    "ZeroRedundancyOptimizer": "an optimizer of all parameters, or fully_shard (FSDP2)",
    "DataParallel": "DistributedDataParallel",
    "PostLocalSGDOptimizer": f"{_OPTIMIZER}, and averages that each step takes",
    "DistributedOptimizer": _OPTIMIZER,
    "PipelineStage": "the step of one stage, or the whole model",
    "_PipelineSchedule": "the step of one stage, or the whole model",
    "ModelAverager": "averages that each step takes, such as all_reduce of the parameters",
}
"""Wrappers of torch that are refused, with what is read in their place."""

_PACKAGES = ("deepspeed", "horovod", "fairscale", "apex", "colossalai", "bagua", "megatron", "hivemind")
"""Packages whose wrappers are refused."""


_OF_OBJECTS = (
    "all_gather_object",
    "gather_object",
    "broadcast_object_list",
    "scatter_object_list",
    "send_object_list",
    "recv_object_list",
    "_object_to_tensor",
)
"""Collectives of Python objects, and the function that those call which a user imported by name."""


def check_read(wrapper: Any) -> None:
    """Refuse a module, an optimiser or another object by its class, before it fails somewhere inside.

    Raises:
        UnsupportedError: with the line and what is read instead.
    """
    for each in type(wrapper).__mro__:
        package = each.__module__.split(".")[0]
        if package in _PACKAGES:
            raise _unread(f"{package}.{each.__name__}", "DistributedDataParallel, or fully_shard (FSDP2)")
        if each.__name__ in _UNREAD and package == "torch":
            raise _unread(each.__name__, _UNREAD[each.__name__])


def _unread(name: str, expected: str) -> UnsupportedError:
    return UnsupportedError(
        f"trace_step: {name} is not read at {shown_place(current_place())}, got one, expected {expected}"
    )


def recipe_for(model: Any) -> Any:
    """The module to trace in place of a wrapper; other modules as they are.

    Raises:
        UnsupportedError: a wrapper in it is not followed.
    """
    from torch.nn.parallel import DistributedDataParallel

    model = getattr(model, "_orig_mod", model)  # of torch.compile, which changes nothing of what is computed
    for each in model.modules():
        check_read(each)
        if isinstance(each, DistributedDataParallel):
            check_replicated(each)
    if is_fully_sharded(model):
        check_sharded(model)
    check_cut(model)
    return model


def is_wrapped(model: Any) -> bool:
    """True for a model with a wrapper that reduces gradients."""
    from torch.nn.parallel import DistributedDataParallel

    return is_fully_sharded(model) or any(
        isinstance(each, DistributedDataParallel) for each in model.modules()
    )


def _uncompiled() -> contextlib.AbstractContextManager[None]:
    """Let functions and modules of ``torch.compile`` run as they are written, whatever they were compiled with."""
    import torch._dynamo

    found: contextlib.AbstractContextManager[None] = torch._dynamo.config.patch(
        error_on_nested_fx_trace=False
    )
    return found


@contextlib.contextmanager
def _objects_refused() -> Iterator[None]:
    """Refuse collectives of Python objects, whose pickles are made as the step runs; a barrier is one on any backend.

    Raises:
        UnsupportedError: with the line and the name.
    """
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    def refusing(name: str) -> Callable[..., Any]:
        def refuse(*_: Any, **__: Any) -> Any:
            raise UnsupportedError(
                f"trace_step: a collective of objects is not read at {shown_place(current_place())}, got "
                f"{name}, expected a collective of tensors"
            )

        return refuse

    def barrier(group: Any = None, *_: Any, **__: Any) -> None:
        dist.barrier(group)

    named: dict[str, Callable[..., Any]] = {name: refusing(name.removeprefix("_")) for name in _OF_OBJECTS}
    named["monitored_barrier"] = barrier
    modules = (dist, distributed_c10d)
    with replaced(
        (m, name, function) for m in modules for name, function in named.items() if hasattr(m, name)
    ):
        yield


@contextlib.contextmanager
def _schedules_refused() -> Iterator[None]:
    """Refuse averages of models, and schedules where this PyTorch has others, which a step calls by itself."""
    changes: list[tuple[Any, str, Any]] = []
    for name, kind, method in (
        ("torch.distributed.pipelining.schedules", "_PipelineSchedule", "step"),
        ("torch.distributed.algorithms.model_averaging.averagers", "ModelAverager", "average_parameters"),
    ):
        base = getattr(sys.modules.get(name), kind, None)
        if base is schedule_class():
            continue
        kinds: list[Any] = [] if base is None else [base, *_subclasses(base)]
        changes += [(each, method, _refused_method) for each in kinds if method in vars(each)]
    with replaced(changes):
        yield


def _refused_method(self: Any, *_: Any, **__: Any) -> None:
    check_read(self)


def _subclasses(kind: Any) -> Iterator[Any]:
    for each in kind.__subclasses__():
        yield each
        yield from _subclasses(each)


def followed(step: Callable[..., Any], model: Any, optimizer: Any) -> Callable[..., Any]:
    """The step, with what wrappers and hooks of parameters do while it runs on traced tensors.

    Args:
        step: the user's function.
        model: the module with its own parameters, which is later given with traced ones.
        optimizer: the optimiser or None.
    Raises:
        UnsupportedError: a hook of a parameter is not followed.
    """
    from torch.nn.parallel import DistributedDataParallel

    originals = dict(model.named_parameters(remove_duplicate=False))
    wrappers = [each for each in model.modules() if isinstance(each, DistributedDataParallel)]
    wrapped = {id(p) for each in wrappers for p in each.parameters()}
    hooks = {name: hooks_of(p, name, in_wrapper=id(p) in wrapped) for name, p in model.named_parameters()}
    given = {name: p for name, p in originals.items() if is_followed(p)}
    tensors = originals | dict(model.named_buffers(remove_duplicate=False))

    @functools.wraps(step)
    def run(model: Any, *args: Any) -> Any:
        parameters = dict(model.named_parameters(remove_duplicate=False))
        traced = parameters | dict(model.named_buffers(remove_duplicate=False))
        with contextlib.ExitStack() as stack:
            stack.enter_context(_uncompiled())
            stack.enter_context(_objects_refused())
            stack.enter_context(_schedules_refused())
            stack.enter_context(pipelines_followed())
            stack.enter_context(replicated(model, originals))
            stack.enter_context(reductions_followed(model))
            stack.enter_context(dtensors_followed())
            stack.enter_context(references_followed(tensors, traced))
            stack.enter_context(other_optimizers_checked(optimizer))
            nodes = [
                each.copy_to(traced[name], given.get(name, traced[name])) for name, each in hooks.items()
            ]
            made = step(model, *args)
            nodes.clear()
            return made

    return run
