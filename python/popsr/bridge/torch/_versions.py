"""Names and forms that differ between versions of PyTorch, found by what the installed one has."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["sends_buffers", "update_of_adam", "work_of_fakes"]


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

    return adamw if decoupled else adam


def sends_buffers(wrapper: Any) -> bool:
    """Whether a ``DistributedDataParallel`` sends its buffers in forward passes."""
    name = "forward_sync_buffers" if hasattr(wrapper, "forward_sync_buffers") else "broadcast_buffers"
    return bool(getattr(wrapper, name))
