"""``fully_shard`` of FSDP2 as a module that gathers and reduces in Python, as each parameter's gradient does.

Its own hooks manage memory, which a trace has none of. What they compute is this: a parameter is gathered from its
shards before it is used, and its gradient is scattered, as the mean over the ranks, to the shards.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Iterator
from typing import Any

from popsr._text.shown import shown
from popsr.bridge.torch._locations import current_place, shown_place
from popsr.errors import UnsupportedError

__all__ = ["fully_sharded", "is_fully_sharded", "numbers_of_the_step_hashed", "reductions_followed"]

_OF_MEMORY = (
    "reshard",
    "set_is_last_backward",
    "set_reshard_after_forward",
    "set_reshard_after_backward",
    "set_modules_to_forward_prefetch",
    "set_modules_to_backward_prefetch",
    "set_post_optim_event",
    "set_unshard_in_backward",
    "set_reduce_scatter_max_input_buffers",
    "set_allocate_memory_from_process_group_for_comm",
)
"""Methods of ``FSDPModule`` that change when and where something is computed, and no value."""

_AS_MADE = {
    "reduce_grads": True,
    "all_reduce_grads": True,
    "gradient_divide_factor": None,
    "reduce_scatter_unused_params": False,
    "_all_reduce_hook": None,
}
"""Attributes of a group of parameters that change what is computed, as ``fully_shard`` leaves them."""


def is_fully_sharded(model: Any) -> bool:
    """True if ``fully_shard`` was called on a module or on a part of it."""
    from torch.distributed.fsdp import FSDPModule

    return any(isinstance(each, FSDPModule) for each in model.modules())


def fully_sharded(model: Any) -> Any:
    """The module to trace in its place; parameters, buffers and attributes are shared.

    Raises:
        UnsupportedError: shards of other meshes or axes.
    """
    import torch

    parts = [each for each in model.modules() if hasattr(each, "_get_fsdp_state")]
    for group in _parameter_groups(model):
        _check_as_made(group)
    policies, groups = _policies_of_parameters(model, parts), _groups_of_parameters(model)
    gather = _gather()
    inner = _copied(model, _plain_class(model))
    inner._forward_pre_hooks, inner._forward_hooks = (
        copy.copy(each) for each in (inner._forward_pre_hooks, inner._forward_hooks)
    )

    def forward(self: Any, *args: Any, **options: Any) -> Any:
        whole = {
            name: gather.apply(p.to_local(), name, groups.get(name), *_groups(name, p), *policies[name])
            for name, p in self.named_parameters(remove_duplicate=False)
            if hasattr(p, "placements")
        }
        with _without_hooks([*parts, inner]), _casting([*zip(parts, parts, strict=True), (model, inner)]):
            return torch.func.functional_call(inner, whole, args, options)

    methods = {name: _delegating(model, name) for name in _methods() if hasattr(model, name)}
    members = {"forward": forward, **methods}
    shell = _copied(inner, type(f"Sharded{inner.__class__.__name__}", (inner.__class__,), members))
    shell._forward_pre_hooks, shell._forward_hooks = (
        type(shell._forward_pre_hooks)(),
        type(shell._forward_hooks)(),
    )
    return shell


def _copied(module: Any, kind: Any) -> Any:
    """A shallow copy of a module; ``copy.copy`` calls the constructor of one that was sharded."""
    made = kind.__new__(kind)
    made.__dict__ = dict(module.__dict__)
    return made


def _methods() -> list[str]:
    """Names of what ``fully_shard`` adds to a module for its users."""
    from torch.distributed.fsdp import FSDPModule

    return [name for name, value in vars(FSDPModule).items() if callable(value) and not name.startswith("_")]


def _delegating(model: Any, name: str) -> Any:
    return lambda _self, *args, **options: getattr(model, name)(*args, **options)


def _parameter_groups(model: Any) -> Iterator[Any]:
    """The groups of parameters that are gathered together, of all parts."""
    for part in model.modules():
        if hasattr(part, "_get_fsdp_state"):
            yield from _parameter_groups_of(part)


def _parameter_groups_of(part: Any) -> list[Any]:
    state = part._get_fsdp_state()
    if hasattr(state, "_fsdp_param_groups"):
        return list(state._fsdp_param_groups)
    return [state._fsdp_param_group] if state._fsdp_param_group else []


def _groups_of_parameters(model: Any) -> dict[str, Any]:
    """The group of each parameter by its name."""
    found = {each.sharded_param: group for group in _parameter_groups(model) for each in group.fsdp_params}
    return {name: found.get(p) for name, p in model.named_parameters(remove_duplicate=False)}


def _check_as_made(group: Any, *, but: tuple[str, ...] = ()) -> None:
    """Refuse options of a group of parameters that are not followed.

    Raises:
        UnsupportedError: with the name of the option.
    """
    found = {name: getattr(group, name, value) for name, value in _AS_MADE.items() if name not in but}
    found = {name: value for name, value in found.items() if value is not _AS_MADE[name]}
    for name in ("_all_gather_comm", "_reduce_scatter_comm"):
        kind = type(getattr(group, name, None)).__name__
        if not kind.startswith(("Default", "ProcessGroupAlloc", "NoneType")):
            found[name] = kind
    if found:
        name, value = next(iter(found.items()))
        raise UnsupportedError(
            f"trace_step: an option of fully_shard is not followed, got {name.lstrip('_')} = {shown(value)}, expected "
            "it as fully_shard makes it"
        )


@contextlib.contextmanager
def reductions_followed(model: Any) -> Iterator[None]:
    """Follow what a step switches of a module of ``fully_shard``, or refuse it.

    Gradients of a backward pass that is not to reduce are added to those of the next that does.

    Args:
        model: the module.
    Raises:
        UnsupportedError: a switch is not followed, or gradients are left at the end of the step.
    """
    from torch.distributed.fsdp import FSDPModule

    groups = list(_parameter_groups(model))
    kept = {name: vars(FSDPModule)[name] for name in _methods()}

    try:
        for name in kept:
            if name in _OF_MEMORY:
                setattr(FSDPModule, name, lambda _self, *_, **__: None)
            elif name != "set_requires_gradient_sync":
                setattr(FSDPModule, name, functools.partialmethod(_refuse, name))
        yield
        left = [name for group in groups for name in getattr(group, "_popsr_parts", ())]
        if left or any(not group.reduce_grads for group in groups):
            raise UnsupportedError(
                "trace_step: gradients of fully_shard are not reduced when the step ends, got "
                f"set_requires_gradient_sync(False){f' of {shown(left[0])}' if left else ''}, expected a last backward "
                "pass that reduces"
            )
    finally:
        for name, method in kept.items():
            setattr(FSDPModule, name, method)
        for group in groups:
            group.reduce_grads = group.all_reduce_grads = True
            vars(group).pop("_popsr_parts", None)


def _plain_class(model: Any) -> Any:
    """The class of a module before it was sharded."""
    from torch.distributed.fsdp import FSDPModule

    return type(model).__bases__[1] if isinstance(model, FSDPModule) else type(model)


def _policies_of_parameters(model: Any, parts: list[Any]) -> dict[str, tuple[Any, Any]]:
    """Element types in which each parameter is gathered and its gradient is reduced, by name; None: its own."""
    found: dict[Any, tuple[Any, Any]] = {}
    for part in parts:
        policy = part._get_fsdp_state()._mp_policy
        for group in _parameter_groups_of(part):
            for each in group.fsdp_params:
                found[each.sharded_param] = policy.param_dtype, policy.reduce_dtype
    return {name: found.get(p, (None, None)) for name, p in model.named_parameters(remove_duplicate=False)}


def _refuse(_self: Any, name: str, *_: Any, **__: Any) -> None:
    raise UnsupportedError(
        f"trace_step: FSDPModule.{name} is not read at {shown_place(current_place())}, got a call in a step, expected "
        "set_requires_gradient_sync, or methods that change no value"
    )


@contextlib.contextmanager
def numbers_of_the_step_hashed() -> Iterator[None]:
    """Let DTensor look up ops whose operands are numbers that are known only when the step runs, such as a count."""
    from torch.distributed.tensor._op_schema import OpSchema

    kept = OpSchema.__hash__, OpSchema.__eq__

    def hashed(self: Any) -> int:
        try:
            return int(kept[0](self))
        except RuntimeError:  # a symbol without a value
            return id(self)

    def equal(self: Any, other: Any) -> bool:
        try:
            return self is other or bool(kept[1](self, other))
        except RuntimeError:
            return False

    members: Any = OpSchema
    members.__hash__, members.__eq__ = hashed, equal
    try:
        yield
    finally:
        members.__hash__, members.__eq__ = kept


@contextlib.contextmanager
def _casting(called: list[tuple[Any, Any]]) -> Iterator[None]:
    """Let modules cast what they are given and what they return, as their policies say.

    Args:
        called: parts with a policy, and the module that is called in place of each.
    """
    handles = []
    for part, module in called:
        policy = part._get_fsdp_state()._mp_policy if hasattr(part, "_get_fsdp_state") else None
        if policy is None or (
            part is module and any(part is root for root, other in called if other is not root)
        ):
            continue  # without a policy, or the root, in whose place another is called
        if policy.param_dtype and policy.cast_forward_inputs:
            handles.append(
                module.register_forward_pre_hook(_cast_inputs(policy.param_dtype), with_kwargs=True)
            )
        if policy.output_dtype:
            handles.append(module.register_forward_hook(_cast_outputs(policy.output_dtype)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _cast_inputs(dtype: Any) -> Any:
    return lambda _module, args, options: _cast((args, options), dtype)


def _cast_outputs(dtype: Any) -> Any:
    return lambda _module, _args, made: _cast(made, dtype)


def _cast(values: Any, dtype: Any) -> Any:
    """Floats of any structure in another type."""
    import torch
    import torch.utils._pytree as trees

    def one(value: Any) -> Any:
        is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(dtype) if is_float else value

    return trees.tree_map(one, values)


def _groups(name: str, p: Any) -> tuple[Any, Any]:
    """The process group that a parameter is sharded over, and the one that repeats the shards or None."""
    mesh, placements = p.device_mesh, p.placements
    *repeated, shard = placements
    fits = (
        shard.is_shard()
        and shard.dim == 0
        and len(repeated) < 2
        and all(each.is_replicate() for each in repeated)
    )
    if not fits or p.shape[0] % mesh.size(mesh.ndim - 1):
        raise UnsupportedError(
            f"trace_step: parameter {shown(name)} is not cut into equal parts, got {tuple(p.shape)} as {placements} "
            f"on {mesh.size(mesh.ndim - 1)} ranks, expected shards of its first axis over the last axis of the mesh"
        )
    return mesh.get_group(mesh.ndim - 1), mesh.get_group(0) if repeated else None


def _gather() -> Any:
    import torch

    calls = torch.ops._c10d_functional

    class Gather(torch.autograd.Function):
        """The whole of a parameter; of its gradient the shard of the mean over all ranks."""

        @staticmethod
        def forward(
            ctx: Any, shard: Any, name: str, owner: Any, within: Any, across: Any, dtype: Any, reduced: Any
        ) -> Any:
            ctx.groups, ctx.reduced, ctx.dtype = (within, across), reduced, shard.dtype
            ctx.name, ctx.owner = name, owner
            part = shard.contiguous() if dtype is None else shard.contiguous().to(dtype)
            return calls.wait_tensor(calls.all_gather_into_tensor(part, within.size(), within.group_name))

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            within, across = ctx.groups
            grad = grad.contiguous() if ctx.reduced is None else grad.contiguous().to(ctx.reduced)
            grad = _with_parts(ctx.owner, ctx.name, grad)
            if grad is None:
                return (None,) * 7
            part = calls.reduce_scatter_tensor(grad, "avg", within.size(), within.group_name)
            part = calls.wait_tensor(part)
            if across is not None:
                part = calls.wait_tensor(calls.all_reduce(part, "avg", across.group_name))
            return part.to(ctx.dtype), *(None,) * 6

    return Gather


def _with_parts(group: Any, name: str, grad: Any) -> Any:
    """The gradient with those that were not reduced before; None while its group does not reduce."""
    if group is None:
        return grad
    _check_as_made(group, but=("reduce_grads", "all_reduce_grads"))
    parts = vars(group).setdefault("_popsr_parts", {})
    before = parts.pop(name, None)
    grad = grad if before is None else before + grad
    if group.reduce_grads:
        return grad
    parts[name] = grad
    return None


@contextlib.contextmanager
def _without_hooks(parts: list[Any]) -> Iterator[None]:
    """Take the hooks of ``fully_shard`` away for a while."""
    states = [part._get_fsdp_state() for part in parts if hasattr(part, "_get_fsdp_state")]
    own = {
        handle.id
        for state in states
        for handle in (state._pre_forward_hook_handle, state._post_forward_hook_handle)
        if handle is not None
    }
    kept = [(part, part._forward_pre_hooks, part._forward_hooks) for part in parts]
    try:
        for part, before, after in kept:
            part._forward_pre_hooks = type(before)((k, v) for k, v in before.items() if k not in own)
            part._forward_hooks = type(after)((k, v) for k, v in after.items() if k not in own)
        yield
    finally:
        for part, before, after in kept:
            part._forward_pre_hooks, part._forward_hooks = before, after
