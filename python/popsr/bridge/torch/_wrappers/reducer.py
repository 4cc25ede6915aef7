"""The reducer of ``DistributedDataParallel``, which is C++ and of process groups that a trace has none of, in Python.

Everything else of the wrapper is torch's own code: it decides in the forward pass whether gradients are reduced, when
buffers are sent, and which outputs a search for unused parameters begins at.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from popsr._support.text.shown import shown
from popsr.bridge.torch._user.locations import current_place, shown_place
from popsr.bridge.torch._versions import sends_buffers
from popsr.bridge.torch._wrappers.buckets import hook_of
from popsr.errors import UnsupportedError

__all__ = ["check_replicated", "replicated"]

_REFUSED = {
    "mixed_precision": "mixed_precision=",
    "_use_python_reducer": "the reducer of torch.compile (optimize_ddp)",
    "_delay_all_reduce_params": "delay_all_reduce_named_params=",
    "skip_all_reduce_unused_params": "skip_all_reduce_unused_params=True",
    "batched_grad_copy": "batched_grad_copy=True",
    "buffer_hook": "a communication hook of buffers",
    "_delay_all_reduce_all_params": "delay_all_reduce_named_params=",
}
"""Attributes of a wrapper that change what it computes, with what sets them."""


def check_replicated(wrapper: Any) -> None:
    """Refuse a wrapper whose options are not followed.

    Raises:
        UnsupportedError: with the name of the option.
    """
    found = [told for name, told in _REFUSED.items() if getattr(wrapper, name, None)]
    if wrapper._join_config.enable:
        found.append("join()")
    if any(hasattr(p, "_in_backward_optimizers") for p in wrapper.module.parameters()):
        found.append("optimizers in the backward pass")
    if any(hasattr(p, "placements") for p in wrapper.module.parameters()):
        found.append("parameters that are DTensors")
    if found:
        raise _unfollowed(found[0])


def _unfollowed(told: str) -> UnsupportedError:
    where = current_place()
    return UnsupportedError(
        f"trace_step: DistributedDataParallel with {told} is not followed, got it"
        f"{'' if where is None else f' at {shown_place(where)}'}, expected a wrapper without"
    )


def _refuse_join(**_: Any) -> Any:
    raise _unfollowed("join()")


@contextlib.contextmanager
def replicated(model: Any, originals: dict[str, Any]) -> Iterator[None]:
    """Let the wrappers in a model reduce gradients and send buffers by collectives that a trace records.

    Args:
        model: the module, with traced tensors as parameters.
        originals: its parameters by name, as they were when the wrappers were made.
    Raises:
        UnsupportedError: torch refuses the step after this one, or does other things in it.
    """
    from torch.nn.parallel import DistributedDataParallel

    names = {id(p): name for name, p in originals.items()}
    wrappers = [each for each in model.modules() if isinstance(each, DistributedDataParallel)]
    reducers = [Reducer(each, model, names) for each in wrappers]
    before = [_switches(each) for each in wrappers]
    with contextlib.ExitStack() as stack:
        stack.enter_context(_only_followed(DistributedDataParallel))
        for wrapper, reducer in zip(wrappers, reducers, strict=True):
            stack.enter_context(_in_place_of(wrapper, reducer))
        for reducer in reducers:
            stack.callback(reducer.close)
        yield
        for wrapper, reducer, old in zip(wrappers, reducers, before, strict=True):
            reducer.check_end()
            if _switches(wrapper) != old:
                raise UnsupportedError(
                    "trace_step: DistributedDataParallel does other things in the next step, got "
                    f"{_SWITCHES} = {_switches(wrapper)} at the end of the step and {old} before it, expected "
                    "the last forward pass to reduce gradients, or broadcast_buffers=False"
                )


_SWITCHES = "require_backward_grad_sync, require_forward_param_sync"


def _switches(wrapper: Any) -> tuple[bool, bool]:
    """Switches that one step leaves for the next; whether buffers are sent counts where there are some."""
    sends = sends_buffers(wrapper) and any(True for _ in wrapper.module.buffers())
    return wrapper.require_backward_grad_sync, bool(wrapper.require_forward_param_sync and sends)


@contextlib.contextmanager
def _only_followed(wrapper_class: Any) -> Iterator[None]:
    """Refuse forward passes of wrappers that are not followed, such as one that the model does not hold."""
    forward = wrapper_class._pre_forward

    def checked(self: Any, *args: Any, **options: Any) -> Any:
        if not isinstance(self.reducer, Reducer):
            raise UnsupportedError(
                "trace_step: a DistributedDataParallel outside of the model is called at "
                f"{shown_place(current_place())}, got one around {shown(type(self.module).__name__)}, expected the "
                "wrapper, or a module that holds it, as model"
            )
        check_replicated(self)
        return forward(self, *args, **options)

    wrapper_class._pre_forward = checked
    try:
        yield
    finally:
        wrapper_class._pre_forward = forward


_OF_A_RUN = (
    "reducer",
    "logger",
    "_lazy_init_ran",
    "_static_graph_delay_allreduce_enqueued",
    "require_backward_grad_sync",
    "require_forward_param_sync",
    "modules_buffers",
    "named_module_buffers",
)
"""Attributes of a wrapper that a step changes."""


@contextlib.contextmanager
def _in_place_of(wrapper: Any, reducer: Reducer) -> Iterator[None]:
    """Let a wrapper use a reducer of Python, and collectives that are recorded, for a while."""
    kept = {name: wrapper.__dict__[name] for name in _OF_A_RUN if name in wrapper.__dict__}
    try:
        wrapper.__dict__ |= {"reducer": reducer, "logger": reducer, "_lazy_init_ran": True}
        wrapper.__dict__["_static_graph_delay_allreduce_enqueued"] = False  # each step is as the first one
        wrapper.__dict__ |= {"_default_broadcast_coalesced": reducer.send_buffers, "join_hook": _refuse_join}
        yield
    finally:
        for name in ("_default_broadcast_coalesced", "join_hook", *_OF_A_RUN):
            wrapper.__dict__.pop(name, None)
        wrapper.__dict__ |= kept


class Reducer:
    """The rules of torch's reducer, parameter by parameter; buckets of several change no value.

    Args:
        wrapper: the wrapper.
        model: the module that holds it, with traced parameters.
        names: the name of each original parameter of the model, by identity.
    """

    def __init__(self, wrapper: Any, model: Any, names: dict[int, str]) -> None:
        """Nothing reduced yet; hooks of all parameters that the constructor of the wrapper saw."""
        import torch
        from torch.utils._python_dispatch import _disable_current_modes

        self._wrapper, self._group = wrapper, wrapper.process_group
        with _disable_current_modes():  # no op of the step reads the memory of these buckets
            buckets = wrapper.reducer._get_zeros_like_grad_buckets()
        found = [p for bucket in buckets for p in bucket.parameters()]
        gone = [tuple(p.shape) for p in found if id(p) not in names]
        if gone:
            raise UnsupportedError(
                "trace_step: parameters were replaced after DistributedDataParallel was made, got one of shape "
                f"{gone[0]} that is no longer the model's, expected the wrapper to be made last"
            )
        traced = dict(model.named_parameters(remove_duplicate=False))
        self._names = [names[id(p)] for p in found]
        self._parameters = [traced[name] for name in self._names]
        self._nodes: dict[int, Any] = {}
        self._views = (
            [torch.zeros_like(p) for p in self._parameters] if wrapper.gradient_as_bucket_view else None
        )
        self._hook = hook_of(wrapper)
        self._searches = wrapper.find_unused_parameters and not wrapper.static_graph
        self._parts: dict[int, Any] = {}
        self._used: set[int] = set()
        self._unused: set[int] = set()
        self._fired: dict[int, list[Any]] = {}
        self._fired_first: dict[int, int] | None = None
        self._expects = self._was_prepared = self._relies_on_before = False
        self._attach()

    # Calls of the wrapper

    def set_runtime_stats_and_log(self) -> None:
        """Log nothing."""

    def prepare_for_forward(self) -> None:
        """Follow parameters that were frozen before."""
        self._attach()

    def _rebuild_buckets(self) -> bool:
        """Refuse a forward pass before the reduction before it has ended, as torch does at this place."""
        if self._parts:
            raise self._unfinished([i for i in range(len(self._names)) if i not in self._parts])
        return False

    def prepare_for_backward(self, outputs: list[Any]) -> None:
        """Expect gradients; of outputs, where there are some, find the parameters that they do not depend on."""
        self._attach()
        self._parts.clear()
        self._fired.clear()
        self._expects = self._was_prepared = True
        self._unused = set()
        if self._searches:
            reached = _reached(outputs)
            self._unused = {
                i for i in range(len(self._parameters)) if id(self._nodes.get(i, self)) not in reached
            }

    def _delay_all_reduce(self) -> None:
        """Do nothing: all backward passes reduce at their end, as the first one does."""

    def send_buffers(self, authoritative_rank: int = 0, **_: Any) -> None:
        """Give buffers the values of the first rank."""
        import torch.distributed._functional_collectives as functional

        for buffer in self._wrapper.modules_buffers:
            buffer.copy_(functional.broadcast(buffer, authoritative_rank, self._group))

    # Gradients

    def _attach(self) -> None:
        """Call ``_ready`` when a gradient has been accumulated, or none came where one might have."""
        from torch.autograd.graph import get_gradient_edge

        for i, p in enumerate(self._parameters):
            if i not in self._nodes and p.requires_grad:
                self._nodes[i] = get_gradient_edge(p).node
                self._nodes[i].register_hook(lambda _, grads, i=i: self._ready(i, grads[0]))

    def _ready(self, i: int, added: Any) -> None:
        import torch

        self._relies_on_before |= not self._was_prepared
        if self._wrapper.static_graph:
            self._note_static(i, added)
            return
        if self._parameters[i].grad is not None:
            self._used.add(i)
        if not self._expects:
            return
        with torch.no_grad():
            if not self._parts:
                for unused in self._unused:
                    self._mark(unused)
            self._mark(i)
        if len(self._parts) == len(self._parameters):
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)

    def _note_static(self, i: int, added: Any) -> None:
        """Note a gradient of a static graph; what is reduced is there at the end of the backward pass.

        Torch reduces at the end in the first step, later once a gradient has come as often as it did then. In the first
        step alone it counts parameters of outputs that no loss uses.
        """
        import torch

        if added is None:
            raise self._unfinished([i])
        if not self._expects:
            raise UnsupportedError(
                "trace_step: DistributedDataParallel with static_graph=True fails, or reduces otherwise at first, "
                f"got a gradient of {shown(self._names[i])} that no forward pass of the wrapper expects, expected one "
                "backward pass after each forward pass, and none under no_sync()"
            )
        if not self._fired:
            torch.autograd.Variable._execution_engine.queue_callback(self._finish_static)
        grad = self._parameters[i].grad
        self._fired.setdefault(i, []).append((grad, None if grad is None else grad._version))

    def _finish_static(self) -> None:
        import torch

        if not self._wrapper._static_graph_delay_allreduce_enqueued:
            raise UnsupportedError(
                "trace_step: DistributedDataParallel with static_graph=True reduces nothing in the first step, got a "
                "loss that is not of what the wrapper returns, expected one of its results"
            )
        for i, seen in self._fired.items():
            grad, version = seen[-1]
            now = self._parameters[i].grad
            if now is not grad or (grad is not None and grad._version != version):
                raise UnsupportedError(
                    "trace_step: DistributedDataParallel with static_graph=True reduces the first step otherwise, got "
                    f"a change of the gradient of {shown(self._names[i])} after it was accumulated, expected none "
                    "before the backward pass ends"
                )
        counts = {i: len(seen) for i, seen in self._fired.items()}
        self._fired_first = self._fired_first or counts
        if counts != self._fired_first:
            raise UnsupportedError(
                "trace_step: DistributedDataParallel with static_graph=True raises, got backward passes that use other "
                "parameters than the first one, expected the same ones"
            )
        self._used = {i for i, seen in self._fired.items() if seen[-1][0] is not None}
        with torch.no_grad():
            for i in range(len(self._parameters)):
                self._mark(i)
        self._finish()

    def _mark(self, i: int) -> None:
        """Take this rank's share of the mean, as the gradient is now; of a hook the gradient."""
        import torch

        if i in self._parts:
            raise UnsupportedError(
                f"trace_step: DistributedDataParallel has two gradients of {shown(self._names[i])} in one backward "
                "pass, got a second one, expected the use of a parameter outside of reentrant checkpoints"
            )
        p, share = self._parameters[i], 1.0 if self._hook else 1.0 / self._group.size()
        if self._views is None:
            self._parts[i] = torch.zeros_like(p) if p.grad is None else p.grad * share
            return
        view = self._parts[i] = self._views[i]
        if p.grad is None:
            view.zero_()
        elif p.grad is view:
            view.mul_(share)
        else:
            p.grad = view.copy_(p.grad * share)

    def _finish(self) -> None:
        """Reduce; what no rank used keeps its gradient, as ranks that are traced run the same collectives."""
        import torch
        import torch.distributed._functional_collectives as functional

        keeps = self._searches or self._wrapper.static_graph
        with torch.no_grad():
            for i, part in self._parts.items():
                is_unused = keeps and i not in self._used
                if is_unused and self._views is None:
                    continue
                p = self._parameters[i]
                mean = self._hook(part) if self._hook else functional.all_reduce(part, "sum", self._group)
                if self._views is not None:
                    mean = part.copy_(mean)  # of the gradient itself, where it is a view
                if is_unused:
                    continue
                if p.grad is None and mean.dtype != p.dtype:
                    raise _unfollowed("a hook that makes a gradient of another type")
                if p.grad is None:
                    p.grad = mean
                elif p.grad is not mean:
                    p.grad.copy_(mean)
        self._parts.clear()
        self._expects = False
        self._used.clear()

    def check_end(self) -> None:
        """Refuse a step that is not like the next.

        Raises:
            UnsupportedError: torch raises in the next step, or it begins with what this one left.
        """
        if self._parts:
            raise self._unfinished([i for i in range(len(self._names)) if i not in self._parts])
        if self._hook:
            self._hook.check_end()
        left = "gradients are expected" if self._expects and self._relies_on_before else ""
        if self._used and self._searches:
            left = "parameters were used after the last reduction"
        if left:
            raise UnsupportedError(
                "trace_step: DistributedDataParallel reduces otherwise in the next step, got a step after which "
                f"{left}, expected one that ends with the backward pass of its last forward pass of the wrapper"
            )

    def close(self) -> None:
        """Let go of the nodes of autograd, whose hooks hold this reducer."""
        self._nodes.clear()
        self._fired.clear()

    def _unfinished(self, missing: list[int]) -> UnsupportedError:
        """The error of gradients that were not all computed."""
        return UnsupportedError(
            "trace_step: DistributedDataParallel raises in its next forward pass, got no gradient of "
            f"{shown(self._names[missing[0]])} and {len(missing) - 1} more, expected find_unused_parameters=True, or a "
            "loss of all parameters"
        )


def _reached(outputs: list[Any]) -> set[int]:
    """Identities of the nodes of autograd that some tensors depend on."""
    waiting = [t.grad_fn for t in outputs if t.grad_fn is not None]
    found: dict[int, Any] = {}
    while waiting:
        node = waiting.pop()
        if id(node) not in found:
            found[id(node)] = node
            waiting += [other for other, _ in node.next_functions if other is not None]
    return set(found)
