"""``fully_shard`` of FSDP2 on traced tensors: torch's own code, but for what it does with memory and flat buffers.

Torch's hooks decide when parameters are gathered, when gradients are reduced and by which factors. Here each parameter
is gathered and reduced by a collective of its own, and no storage is freed: neither changes a value.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from popsr._support.text.shown import shown
from popsr.bridge._step.replaced import replaced
from popsr.bridge.torch._states.storage import aliases
from popsr.bridge.torch._user.locations import current_place, shown_place
from popsr.bridge.torch._versions import lacking_of_sharding, torch_version, unsharded_spec
from popsr.errors import UnsupportedError

__all__ = [
    "check_sharded",
    "is_fully_sharded",
    "reductions_followed",
    "sharding_objects",
    "unsharded_specs",
]

_REFUSED = (
    "set_all_reduce_hook",
    "set_custom_all_gather",
    "set_custom_reduce_scatter",
    "set_separate_reduce_scatter_group",
    "set_symm_mem_for_comm",
)
"""Methods of ``FSDPModule`` that put something of the user, or of a device, in place of a collective."""


def is_fully_sharded(model: Any) -> bool:
    """True if ``fully_shard`` was called on a module or on a part of it."""
    from torch.distributed.fsdp import FSDPModule

    return any(isinstance(each, FSDPModule) for each in model.modules())


def check_sharded(model: Any) -> None:
    """Refuse what is not followed of ``fully_shard``, and let its parameters be shards.

    Raises:
        UnsupportedError: with the option, or the parameter; or this version shards otherwise.
    """
    lacking = lacking_of_sharding()
    if lacking:
        raise UnsupportedError(
            f"trace_step: fully_shard (FSDP2) of this PyTorch is not read, got {torch_version()} without {lacking}, "
            "expected a newer PyTorch, or DistributedDataParallel"
        )
    names = {id(p): name for name, p in model.named_parameters(remove_duplicate=False)}
    for group in _parameter_groups(model):
        _check_communication(group)
        group._to_sharded()
        for each in group.fsdp_params:
            if not each.sharded_param.is_meta:
                each.reset_sharded_param()
            _check_plain(each, names.get(id(each.sharded_param), each._module_info.param_name))


def sharding_objects(model: Any) -> list[Any]:
    """Objects of ``fully_shard`` whose attributes a step changes."""
    found: dict[int, Any] = {}
    for state in _states(model):
        groups = _groups_of(state)
        params = [each for group in groups for each in group.fsdp_params]
        for each in (state, state._state_ctx, state._comm_ctx, *groups, *params):
            found[id(each)] = each
    return list(found.values())


def unsharded_specs(model: Any) -> dict[int, Any]:
    """Mesh and placements that gathered parameters have as DTensors, None of plain ones, by identity of the shards."""
    params = (each for group in _parameter_groups(model) for each in group.fsdp_params)
    return {id(each.sharded_param): unsharded_spec(each) for each in params}


def _states(model: Any) -> list[Any]:
    """States of all parts; several modules may share one."""
    found = [part._get_fsdp_state() for part in model.modules() if hasattr(part, "_get_fsdp_state")]
    return list(dict.fromkeys(found))


def _groups_of(state: Any) -> list[Any]:
    if hasattr(state, "_fsdp_param_groups"):
        return list(state._fsdp_param_groups)
    return [state._fsdp_param_group] if state._fsdp_param_group else []


def _parameter_groups(model: Any) -> list[Any]:
    """The groups of parameters that are gathered together, of all parts."""
    return [group for state in _states(model) for group in _groups_of(state)]


def _check_communication(group: Any) -> None:
    """Refuse collectives and hooks of the user in place of torch's.

    Raises:
        UnsupportedError: with the name of the method that sets it.
    """
    found = ["set_all_reduce_hook"] if getattr(group, "_all_reduce_hook", None) else []
    for name, method in (("_all_gather_comm", _REFUSED[1]), ("_reduce_scatter_comm", _REFUSED[2])):
        kind = type(getattr(group, name, None)).__name__
        if not kind.startswith(("Default", "ProcessGroupAlloc", "NoneType")):
            found.append(method)
    if found:
        raise UnsupportedError(
            f"trace_step: FSDPModule.{found[0]} is not followed, got a module on which it was called, expected the "
            "collectives of fully_shard"
        )


def _check_plain(p: Any, name: str) -> None:
    """Refuse a parameter that gathers itself.

    Raises:
        UnsupportedError: with its class.
    """
    if hasattr(p._sharded_local_tensor, "fsdp_pre_all_gather"):
        kind = type(p._sharded_local_tensor).__name__
        raise UnsupportedError(
            f"trace_step: parameter {shown(name)} is gathered by a method of its own, got {kind}.fsdp_pre_all_gather, "
            "expected plain tensors"
        )


@contextlib.contextmanager
def reductions_followed(model: Any) -> Iterator[None]:
    """Let ``fully_shard`` gather and reduce the traced parameters that a model has.

    Args:
        model: the module, with traced tensors as parameters.
    Raises:
        UnsupportedError: a method that is not followed is called, or something is left for the next step.
    """
    groups = _parameter_groups(model)
    params = [each for group in groups for each in group.fsdp_params]
    with replaced(_replacements(params)):
        for each in params:
            _bind(each)
        yield
        _check_left(groups)
        for group in groups:
            group._to_sharded()


def _bind(p: Any) -> None:
    """Let a parameter be the traced one that its module has, of which nothing is gathered yet."""
    p.sharded_param = p._module_info.module._parameters[p._module_info.param_name]
    p._sharded_param_data = p.sharded_param._local_tensor.view(-1)
    p.all_gather_outputs = []
    p.unsharded_accumulated_grad = None
    vars(p).pop("_unsharded_param", None)


def _check_left(groups: list[Any]) -> None:
    """Refuse gradients that are not reduced when the step ends, and parameters that changed and are still gathered.

    Raises:
        UnsupportedError: with the method that is missing.
    """
    for group in groups:
        for each in group.fsdp_params:
            gathered = getattr(each, "_unsharded_param", None)
            if each.unsharded_accumulated_grad is not None or getattr(gathered, "grad", None) is not None:
                raise _left("set_requires_gradient_sync(False)", each)
        if getattr(group, "_partial_reduce_output", None):
            raise _left("set_requires_all_reduce(False)", group.fsdp_params[0])
    written = _written_of_trace()
    kept = [each for group in groups if not group.is_sharded for each in group.fsdp_params]
    changed = next((p for p in kept if written(p.sharded_param) or written(p._unsharded_param)), None)
    if changed is not None:
        raise UnsupportedError(
            f"trace_step: the old values of {shown(changed._param_fqn)} are still gathered when the step ends, and are "
            "used by the next one, got a forward pass without a backward pass, or set_reshard_after_backward(False), "
            "expected reshard() of the module at the end of the step"
        )


def _written_of_trace() -> Callable[[Any], bool]:
    """A function that says if an op of the trace so far has written a tensor, or another one in its memory."""
    from torch.fx.experimental.proxy_tensor import get_innermost_proxy_mode, get_proxy_slot

    tracer: Any = getattr(get_innermost_proxy_mode(), "tracer", None)
    roots, writes = aliases(list(tracer.graph.nodes))
    targets = {root for root, _ in writes}

    def is_written(t: Any) -> bool:
        slot: Any = get_proxy_slot(getattr(t, "_local_tensor", t), tracer, None)
        return slot is None or roots[slot.proxy.node] in targets

    return is_written


def _left(switch: str, p: Any) -> UnsupportedError:
    return UnsupportedError(
        f"trace_step: gradients of fully_shard are not reduced when the step ends, got {switch} of "
        f"{shown(p._param_fqn)}, expected a last backward pass that reduces"
    )


def _replacements(params: list[Any]) -> Iterator[tuple[Any, str, Any]]:
    """Functions of torch by module and name, with those in their place.

    Args:
        params: the parameters that are followed.
    """
    import torch
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.fsdp._fully_shard import _fsdp_collectives, _fsdp_param, _fsdp_param_group

    known = {id(each) for each in params}
    yield _fsdp_param_group, "foreach_all_gather", functools.partial(_gathered, known)
    yield _fsdp_param_group, "foreach_all_gather_copy_out", torch.no_grad()(_refilled)
    reduce = _fsdp_collectives.foreach_reduce
    yield _fsdp_param_group, "foreach_reduce", functools.partial(_reduced, reduce)
    yield _fsdp_collectives, "foreach_reduce_scatter_copy_in", _flattened
    factors = _fsdp_collectives._get_gradient_divide_factors
    yield _fsdp_collectives, "_get_gradient_divide_factors", functools.partial(_divided, factors)
    yield _fsdp_param.FSDPParam, "reset_sharded_param", lambda _self: None
    for module in (_fsdp_param, _fsdp_param_group):
        for name in ("alloc_storage", "free_storage"):
            if hasattr(module, name):
                yield module, name, lambda _t: None
    for name in _REFUSED:
        if hasattr(FSDPModule, name):
            yield FSDPModule, name, functools.partialmethod(_refuse, name)


def _refuse(_self: Any, name: str, *_: Any, **__: Any) -> None:
    raise UnsupportedError(
        f"trace_step: FSDPModule.{name} is not read at {shown_place(current_place())}, got a call in a step, expected "
        "the collectives of fully_shard"
    )


def _gathered(known: set[int], params: list[Any], group: Any, *_: Any) -> Any:
    """The whole of each parameter, flat and in the order of its shards, as the result of a gather.

    Raises:
        UnsupportedError: a module that is not the model's.
    """
    import torch
    from torch.distributed.fsdp._fully_shard._fsdp_collectives import AllGatherResult

    calls: Any = torch.ops._c10d_functional
    made = []
    for each in params:
        if id(each) not in known:
            raise UnsupportedError(
                f"trace_step: a module of fully_shard outside of the model is called at "
                f"{shown_place(current_place())}, got one with {shown(each._param_fqn)}, expected it in the model"
            )
        with torch.no_grad():
            (shard,) = each.all_gather_inputs
            whole = calls.all_gather_into_tensor(shard.contiguous(), group.size(), group.group_name)
            made.append(calls.wait_tensor(whole))
    kind: Any = AllGatherResult
    return kind(*(None for _ in kind._fields))._replace(all_gather_output=made)


def _refilled(result: Any, params: list[Any], group: Any) -> None:
    """Put what was gathered where the unsharded parameters are views of, without a count of the write."""
    import torch
    from torch import autograd

    uncounted: Any = autograd
    for each, flat in zip(params, result.all_gather_output, strict=True):
        dim, whole = each.fsdp_placement.dim, flat
        if dim and each.sharded_state.name == "SHARDED":
            parts = flat.view(group.size(), *each.padded_sharded_param_size)
            whole = torch.cat(parts.unbind(0), dim).reshape(-1)
        if not each.all_gather_outputs:
            each.all_gather_outputs = [whole]
        else:
            (out,) = each.all_gather_outputs
            with uncounted._unsafe_preserve_version_counter(out):
                out.copy_(whole)


def _reduced(reduce: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Torch's reduction, parameter by parameter; gradients that wait for an all-reduce are kept by parameter."""
    call = inspect.signature(reduce).bind(*args, **options)
    call.apply_defaults()
    params, grads = call.arguments["fsdp_params"], list(call.arguments["unsharded_grads"])
    waiting = call.arguments["partial_reduce_output"] or {}
    if waiting and list(waiting) != params:
        raise UnsupportedError(
            "trace_step: passes before set_requires_all_reduce(True) have gradients of different parameters, got "
            f"{len(waiting)} and then {len(params)} of them, expected the same ones"
        )
    left: dict[Any, Any] = {}
    made: Any = None
    for each, grad in zip(params, grads, strict=True):
        call.arguments |= {"fsdp_params": [each], "unsharded_grads": [grad]}
        call.arguments["partial_reduce_output"] = waiting.get(each)
        made = reduce(*call.args, **call.kwargs)
        if made[-1] is not None:
            left[each] = made[-1]
    return (*made[:-1], left or None)


def _flattened(grads: list[Any], out: Any, _world: int) -> None:
    """The one gradient that is reduced at a time, whose parts are of one size."""
    (grad,) = grads
    out.copy_(grad.reshape(-1))


def _divided(factors: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Torch's factors and reductions; a sum of multiples, which NCCL alone has, as a division and a sum."""
    import torch.distributed as dist

    before, after, scatter, reduce = factors(*args, **options)
    if getattr(getattr(scatter, "op", scatter), "name", "") == "PREMUL_SUM":
        _, factor = scatter.__getstate__()
        return 1 / factor, after, dist.ReduceOp.SUM, reduce
    return before, after, scatter, reduce
