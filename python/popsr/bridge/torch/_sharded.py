"""``fully_shard`` of FSDP2 as a module that gathers and reduces in Python, as each parameter's gradient does.

Its own hooks manage memory, which a trace has none of. What they compute is this: a parameter is gathered from its
shards before it is used, and its gradient is scattered, as the mean over the ranks, to the shards.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

from popsr._text.shown import shown
from popsr.errors import UnsupportedError

__all__ = ["fully_sharded", "is_fully_sharded"]


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
    policies = _policies_of_parameters(model, parts)
    gather = _gather()
    inner = copy.copy(model)
    inner.__class__ = _plain_class(model)
    inner._forward_pre_hooks, inner._forward_hooks = (
        copy.copy(each) for each in (inner._forward_pre_hooks, inner._forward_hooks)
    )

    def forward(self: Any, *args: Any, **options: Any) -> Any:
        whole = {
            name: gather.apply(p.to_local(), *_groups(name, p), *policies[name])
            for name, p in self.named_parameters(remove_duplicate=False)
            if hasattr(p, "placements")
        }
        with _without_hooks([*parts, inner]), _casting([*zip(parts, parts, strict=True), (model, inner)]):
            return torch.func.functional_call(inner, whole, args, options)

    shell = copy.copy(inner)
    shell._forward_pre_hooks, shell._forward_hooks = (
        type(shell._forward_pre_hooks)(),
        type(shell._forward_hooks)(),
    )
    shell.__class__ = type(f"Sharded{inner.__class__.__name__}", (inner.__class__,), {"forward": forward})
    return shell


def _plain_class(model: Any) -> Any:
    """The class of a module before it was sharded."""
    from torch.distributed.fsdp import FSDPModule

    return type(model).__bases__[1] if isinstance(model, FSDPModule) else type(model)


def _policies_of_parameters(model: Any, parts: list[Any]) -> dict[str, tuple[Any, Any]]:
    """Element types in which each parameter is gathered and its gradient is reduced, by name; None: its own."""
    found: dict[Any, tuple[Any, Any]] = {}
    for part in parts:
        state = part._get_fsdp_state()
        for each in state._fsdp_param_group.fsdp_params if state._fsdp_param_group else ():
            found[each.sharded_param] = state._mp_policy.param_dtype, state._mp_policy.reduce_dtype
    return {name: found.get(p, (None, None)) for name, p in model.named_parameters(remove_duplicate=False)}


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
        def forward(ctx: Any, shard: Any, within: Any, across: Any, dtype: Any, reduced: Any) -> Any:
            ctx.groups, ctx.reduced, ctx.dtype = (within, across), reduced, shard.dtype
            part = shard.contiguous() if dtype is None else shard.contiguous().to(dtype)
            return calls.wait_tensor(calls.all_gather_into_tensor(part, within.size(), within.group_name))

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            within, across = ctx.groups
            grad = grad.contiguous() if ctx.reduced is None else grad.contiguous().to(ctx.reduced)
            part = calls.reduce_scatter_tensor(grad, "avg", within.size(), within.group_name)
            part = calls.wait_tensor(part)
            if across is not None:
                part = calls.wait_tensor(calls.all_reduce(part, "avg", across.group_name))
            return part.to(ctx.dtype), None, None, None, None

    return Gather


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
