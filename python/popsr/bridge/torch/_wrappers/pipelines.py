"""Schedules of ``torch.distributed.pipelining``: what they send and compute is torch's own, what they keep is not kept.

Before its first step torch compares the shapes that stages expect, and makes the memory that messages arrive in, which
the steps after it use again. Here each step makes it anew: all of it is received before it is read.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from popsr.bridge._step.replaced import replaced
from popsr.bridge.torch._states.kept import kept_attributes
from popsr.bridge.torch._user.locations import current_place, shown_place
from popsr.bridge.torch._wrappers.sharded import is_fully_sharded
from popsr.errors import UnsupportedError

__all__ = ["pipelines_followed"]


@contextlib.contextmanager
def pipelines_followed() -> Iterator[None]:
    """Let schedules run on traced tensors, and leave them and their stages as they were.

    Raises:
        UnsupportedError: a stage does not say its shapes, or is of another kind.
    """
    base = schedule_class()
    if base is None:
        yield
        return
    with contextlib.ExitStack() as stack:

        def initialise(
            self: Any,
            stages: Sequence[Any],
            args: Any,
            kwargs: Any,
            target: Any,
            fwd_initialized: bool,
            bwd_initialized: bool,
            loss_kwargs: Any = None,
        ) -> tuple[bool, bool]:
            stack.enter_context(kept_attributes(self, *stages))
            for stage in stages:
                _check(stage, self._has_backward)
            for stage in stages:
                stage._inference_mode = _utils().InferenceMode.STATIC
                stage._prepare_forward_infra(
                    self._n_microbatches, args, kwargs, has_backward=self._has_backward
                )
            for stage in reversed(stages) if self._has_backward else ():
                stage._prepare_backward_infra(
                    self._n_microbatches, loss_fn=self._loss_fn, target=target, loss_kwargs=loss_kwargs
                )
            return fwd_initialized, bwd_initialized

        with replaced([(base, "_initialize_pp_stages", initialise)]):
            yield


def schedule_class() -> Any:
    """The class of schedules that are followed; None without, or where this PyTorch prepares stages otherwise."""
    module = sys.modules.get("torch.distributed.pipelining.schedules")
    base = getattr(module, "_PipelineSchedule", None)
    return base if hasattr(base, "_initialize_pp_stages") else None


def _utils() -> Any:
    return sys.modules["torch.distributed.pipelining._utils"]


def _check(stage: Any, has_backward: bool) -> None:
    """Refuse a stage that torch would ask other ranks about, or that reduces gradients by itself."""
    from torch.nn.parallel import DistributedDataParallel

    def unread(what: str, expected: str) -> UnsupportedError:
        return UnsupportedError(
            f"trace_step: {what} is not read at {shown_place(current_place())}, got stage {stage.stage_index}, "
            f"expected {expected}"
        )

    if type(stage).__name__ != "PipelineStage":
        raise unread(f"a stage of {type(stage).__name__}", "PipelineStage")
    if isinstance(stage.submod, DistributedDataParallel) or is_fully_sharded(stage.submod):
        raise unread(
            "a wrapped module in a stage", "a plain module, and means of its gradients after schedule.step"
        )
    if _utils().InferenceMode.needs_dynamic(stage._user_meta, has_backward):
        raise unread(
            "a stage that asks others for shapes",
            "input_args= and output_args= of one micro batch in PipelineStage",
        )
