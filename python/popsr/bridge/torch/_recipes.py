"""Wrappers of modules that hook into autograd in C++, as modules that do the same in Python."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from popsr.bridge.torch._sharded import fully_sharded, is_fully_sharded
from popsr.errors import UnsupportedError

__all__ = ["recipe_for"]


def recipe_for(model: Any) -> Any:
    """The module to trace in place of a wrapper; other modules as they are."""
    from torch.nn.parallel import DistributedDataParallel

    model = getattr(model, "_orig_mod", model)  # of torch.compile, which changes nothing of what is computed
    if isinstance(model, DistributedDataParallel):
        return _replicated(model)
    return fully_sharded(model) if is_fully_sharded(model) else model


def _replicated(wrapper: Any) -> Any:
    """``DistributedDataParallel``: gradients become their mean over the group, buffers those of its first rank.

    Raises:
        UnsupportedError: the wrapper has a communication hook.
    """
    import torch
    import torch.distributed._functional_collectives as functional

    if getattr(wrapper, "_comm_hooks", None):
        raise UnsupportedError(
            "trace_step: DistributedDataParallel with a communication hook, got one, expected a wrapper without"
        )
    group, size = wrapper.process_group, wrapper.process_group.size()

    def average(p: Any) -> None:
        p.grad.copy_(functional.all_reduce(p.grad / size, "sum", group))

    class Replicated(torch.nn.Module):
        """The module with the averages of its gradients."""

        def __init__(self) -> None:
            super().__init__()
            self.module = wrapper.module
            self.require_backward_grad_sync = True
            self.training = wrapper.training

        def forward(self, *args: Any, **options: Any) -> Any:
            if self.require_backward_grad_sync:
                for p in self.module.parameters():
                    if p.requires_grad and not getattr(p, "_popsr_averaged", False):
                        p.register_post_accumulate_grad_hook(self._average)
                        p._popsr_averaged = True
                if wrapper.broadcast_buffers:
                    with torch.no_grad():
                        for buffer in self.module.buffers():
                            buffer.copy_(functional.broadcast(buffer, 0, group))
            return self.module(*args, **options)

        def _average(self, p: Any) -> None:
            if self.require_backward_grad_sync:
                average(p)

        @contextlib.contextmanager
        def no_sync(self) -> Iterator[None]:
            kept, self.require_backward_grad_sync = self.require_backward_grad_sync, False
            try:
                yield
            finally:
                self.require_backward_grad_sync = kept

    return Replicated()
