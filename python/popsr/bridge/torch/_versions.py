"""Names and forms that differ between versions of PyTorch, found by what the installed one has."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

__all__ = [
    "forget_lookups",
    "lacking_of_dtensors",
    "lacking_of_sharding",
    "note_constants",
    "sends_buffers",
    "torch_version",
    "unsharded_spec",
    "update_of_adam",
    "work_of_fakes",
]


def torch_version() -> str:
    """The installed version, for messages."""
    import torch

    return f"torch {torch.__version__}"


def work_of_fakes() -> tuple[Any, bool]:
    """The class of handles of collectives that send nothing, and whether one of its own says that it is done.

    Without that class all handles wait, as do those who call collectives then.
    """
    import torch

    core: Any = getattr(torch._C, "_distributed_c10d")  # noqa: B009
    kind = getattr(core, "FakeWork", None)
    return (core.Work, False) if kind is None else (kind, True)


def update_of_adam(*, decoupled: bool) -> Callable[..., None]:
    """Torch's function of Adam, or AdamW, that updates one tensor after the other."""
    from torch.optim.adam import adam

    if "decoupled_weight_decay" in inspect.signature(adam).parameters:
        return functools.partial(adam, decoupled_weight_decay=decoupled)
    from torch.optim.adamw import adamw

    update: Callable[..., None] = adamw if decoupled else adam
    return update


def sends_buffers(wrapper: Any) -> bool:
    """Whether a ``DistributedDataParallel`` sends its buffers in forward passes."""
    name = "forward_sync_buffers" if hasattr(wrapper, "forward_sync_buffers") else "broadcast_buffers"
    return bool(getattr(wrapper, name))


def forget_lookups() -> None:
    """Let DTensor's compiled table of ops begin anew, where it has one: it asks if numbers of the data are equal."""
    import torch

    core: Any = torch._C
    if hasattr(core, "_clear_DTensor_sharding_propagator_cache"):
        core._clear_DTensor_sharding_propagator_cache()


def note_constants(module: Any) -> None:
    """Note with the nodes that read attributes of a graph what their values are, where the trace has not."""
    import torch

    for inner in module.modules():
        for node in getattr(getattr(inner, "graph", None), "nodes", ()):
            value: Any = getattr(inner, node.target, None) if node.op == "get_attr" else None
            if type(value) in (torch.Tensor, torch.nn.Parameter):
                node.meta.setdefault("val", value.detach())


_OF_SHARDING = {
    "foreach_reduce": ("fsdp_params", "unsharded_grads", "gradient_divide_factor", "partial_reduce_output"),
    "_get_gradient_divide_factors": ("device_type", "factor"),
}
"""Functions of ``fully_shard`` that are followed, with arguments that they have where their results are known."""


def lacking_of_dtensors() -> str:
    """Names a thing that DTensors lack to be followed: claims are held against ranks of CPUs; else an empty text."""
    import torch

    has_events = hasattr(torch.cpu.Stream, "record_event")
    return "" if has_events else "events of torch.cpu.Stream, by which shards run on a CPU"


@functools.cache
def lacking_of_sharding() -> str:
    """Names a thing that ``fully_shard`` lacks to be followed on a CPU, where it can be checked; else an empty text."""
    from torch.distributed.fsdp._fully_shard import _fsdp_collectives

    if lacking_of_dtensors():
        return lacking_of_dtensors()
    for name, wanted in _OF_SHARDING.items():
        parameters = inspect.signature(getattr(_fsdp_collectives, name)).parameters
        missing = [each for each in wanted if each not in parameters]
        if missing:
            return f"{missing[0]} of {name}"
    return ""


def unsharded_spec(p: Any) -> Any:
    """Mesh and placements that a parameter of ``fully_shard`` has as a DTensor once gathered; None of a plain one."""
    if hasattr(p, "_unsharded_dtensor_spec"):
        return p._unsharded_dtensor_spec
    return p._tp_spec if p.is_dtensor else None
