"""Hooks that parameters have before a step, and references to parameters that do not pass through the model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from popsr._support.text.shown import shown
from popsr.bridge.torch._user.locations import current_place, shown_place
from popsr.errors import UnsupportedError

__all__ = [
    "REPLACED",
    "Hooks",
    "hooks_of",
    "is_followed",
    "other_optimizers_checked",
    "references_followed",
]


REPLACED = "_popsr_replaced"
"""Attribute of the traced tensor of a parameter that the step before made anew: references are to the old one."""


@dataclass(frozen=True)
class Hooks:
    """Hooks of one parameter, each kind in the order of registration.

    Attributes:
        backward: of ``register_hook``.
        accumulated: of ``register_post_accumulate_grad_hook``.
        before: of ``register_prehook`` of the node that accumulates its gradient.
        after: of ``register_hook`` of that node.
    """

    backward: tuple[Any, ...]
    accumulated: tuple[Any, ...]
    before: tuple[Any, ...]
    after: tuple[Any, ...]

    def copy_to(self, t: Any, p: Any) -> Any:
        """Register them on a traced tensor; returns the node that has to live as long as the step.

        Args:
            t: the tensor.
            p: what hooks are given: the parameter, where references to it are followed.
        """
        from torch.autograd.graph import get_gradient_edge

        if not any((self.backward, self.accumulated, self.before, self.after)):
            return None
        is_trained = t.requires_grad
        t.requires_grad_(True)
        for hook in self.backward:
            t.register_hook(lambda grad, hook=hook: hook(grad))
        for hook in self.accumulated:
            t.register_post_accumulate_grad_hook(lambda _, hook=hook: hook(p))
        node: Any = get_gradient_edge(t).node if self.before or self.after else None
        for hook in self.before:
            node.register_prehook(hook)
        for hook in self.after:
            node.register_hook(hook)
        t.requires_grad_(is_trained)
        return node


def hooks_of(p: Any, name: str, *, in_wrapper: bool) -> Hooks:
    """The hooks of a parameter.

    Args:
        p: the parameter.
        name: its path.
        in_wrapper: True below ``DistributedDataParallel``, which has a hook at the same node.
    Raises:
        UnsupportedError: one is of several parameters, or runs in an order that is unknown.
    """
    from torch.autograd.graph import get_gradient_edge

    node = get_gradient_edge(p).node if p.is_leaf and p.requires_grad else None
    found = Hooks(
        _values(p._backward_hooks),
        _values(p._post_accumulate_grad_hooks),
        () if node is None else _hooks_at(node.register_prehook),
        () if node is None else _hooks_at(node.register_hook),
    )
    for hook in found.backward:
        if getattr(getattr(hook, "func", hook), "__module__", "") == "torch.autograd.graph":
            raise UnsupportedError(
                f"trace_step: a hook of several gradients is not followed, got register_multi_grad_hook of "
                f"{shown(name)}, expected register_hook or register_post_accumulate_grad_hook of each parameter"
            )
    if in_wrapper and (found.before or found.after):
        raise UnsupportedError(
            "trace_step: a hook of the node that accumulates a gradient is not followed below "
            f"DistributedDataParallel, got {_told((*found.before, *found.after)[0])} of {shown(name)}, expected "
            "register_post_accumulate_grad_hook"
        )
    return found


def _values(hooks: Any) -> tuple[Any, ...]:
    return tuple((hooks or {}).values())


def _hooks_at(register: Callable[[Any], Any]) -> tuple[Any, ...]:
    """The hooks that Python registered at a node, which only the handle of another one shows."""
    handle = register(lambda *_: None)
    hooks = dict(handle.hooks_dict_ref())
    del hooks[handle.id]
    handle.remove()
    return tuple(hooks.values())


def _told(hook: Any) -> str:
    """A hook by its name and the line that defines it."""
    inner = getattr(hook, "func", hook)
    code = getattr(inner, "__code__", None)
    line = "" if code is None else f" at {code.co_filename}:{code.co_firstlineno}"
    return f"{shown(getattr(inner, '__name__', type(hook).__name__))}{line}"


# References


@contextlib.contextmanager
def references_followed(originals: dict[str, Any], traced: dict[str, Any]) -> Iterator[None]:
    """Let a parameter or buffer stand for the traced tensor that the model has in its place.

    Closures, lists made before the step, hooks and other optimisers hold such references. Of DTensors they are not
    followed; a step that reads them is refused.

    Args:
        originals: the tensors by path.
        traced: those in their place.
    Raises:
        UnsupportedError: a gradient reached an original, as of a function of autograd that was called with it.
    """
    import torch

    unwatched: Any = torch._C.DisableTorchFunction
    found = {
        id(t): traced[path]
        for path, t in originals.items()
        if is_followed(t) and path in traced and not hasattr(traced[path], REPLACED)
    }
    kept = [(t, type(t)) for t in {id(t): t for t in originals.values()}.values() if id(t) in found]
    with unwatched():
        grads = {path: t.grad for path, t in originals.items() if t.is_leaf}
    changed: list[str] = []
    try:
        for t, kind in kept:
            t.__class__ = _standing_in(kind, found)
        with _inputs_of_backward(found):
            yield
    finally:
        for t, kind in kept:
            t.__class__ = kind
        with unwatched():
            for path, grad in grads.items():
                if originals[path].grad is not grad:
                    changed.append(path)
                    originals[path].grad = grad
    if changed:
        raise UnsupportedError(
            f"trace_step: a gradient of {shown(changed[0])} does not come through the model, got a reference from "
            "before the step in a function of autograd, expected the model's attribute"
        )


@contextlib.contextmanager
def _inputs_of_backward(traced: dict[int, Any]) -> Iterator[None]:
    """Let ``backward(inputs=...)`` follow references; the engine is C++ and does not ask classes of tensors."""
    import torch.utils._pytree as trees
    from torch import autograd

    module: Any = autograd
    run = module._engine_run_backward

    def followed(*args: Any, **options: Any) -> Any:
        args, options = trees.tree_map(lambda t: traced.get(id(t), t), (args, options))
        return run(*args, **options)

    module._engine_run_backward = followed
    try:
        yield
    finally:
        module._engine_run_backward = run


def is_followed(t: Any) -> bool:
    """True for tensors whose references are followed."""
    import torch

    return type(t) in (torch.Tensor, torch.nn.Parameter)


def _standing_in(base: Any, traced: dict[int, Any]) -> Any:
    """A class of tensors that are others, by identity, in whatever is called with them."""
    import torch.utils._pytree as trees

    class Reference(base):
        @classmethod
        def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            given = args[0] if args else None
            args, options = trees.tree_map(lambda t: traced.get(id(t), t), (args, kwargs or {}))
            made = function(*args, **options)
            return given if made is not given and made is traced.get(id(given)) else made  # p += 1 is p

    return Reference


@contextlib.contextmanager
def other_optimizers_checked(optimizer: Any) -> Iterator[None]:
    """Refuse steps of an optimiser that has state and is not the one of the step: its state is not read.

    Raises:
        UnsupportedError: with the line of its step.
    """
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    def check(other: Any, when: str) -> None:
        if other is optimizer or not any(other.state.values()):
            return
        if when == "made":
            other.state.clear()
        raise UnsupportedError(
            f"trace_step: an optimizer that trace_step was not given has state, got {type(other).__name__} at "
            f"{shown_place(current_place())}, expected one optimizer of all parameters, or others without momentum "
            "and other state"
        )

    handles = [
        register_optimizer_step_pre_hook(lambda other, *_: check(other, "before")),
        register_optimizer_step_post_hook(lambda other, *_: check(other, "made")),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
