"""Ops that become others as a step is traced: lists of tensors, fused optimisers, and what ATen's core set lacks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from popsr.bridge.torch._versions import update_of_adam
from popsr.errors import UnsupportedError

__all__ = ["decompositions", "fused_call", "in_terms_of_others"]

# Of torch's decompositions beyond those of the core set, these are exact or as exact as torch's own kernels.
_MORE = (
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_no_training",
    "_native_batch_norm_legit_functional",
    "_batch_norm_with_update",
    "_batch_norm_with_update_functional",
    "_batch_norm_no_update",
    "batch_norm_backward",
    "native_group_norm",
    "upsample_nearest2d",
    "upsample_bilinear2d",
    "upsample_nearest1d",
    "grid_sampler_2d",
    "native_batch_norm",
)
# Rules are shorter than what these decompose to.
_KEPT = (
    "cat",
    "squeeze",
    "linalg_vector_norm",
    "leaky_relu",
    "silu",
    "select_scatter",
    "fill",
    "masked_fill",
    "lerp",
)


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Torch's decompositions to the core set and a few more, without those that have rules; a table to keep."""
    return dict(_decompositions())


@functools.cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    import torch
    from torch._decomp import core_aten_decompositions, decomposition_table

    table = dict(core_aten_decompositions())
    for packet in _MORE:
        start = f"aten.{packet}."
        table |= {op: function for op, function in decomposition_table.items() if str(op).startswith(start)}
    for packet in _KEPT:
        for overload in getattr(torch.ops.aten, packet).overloads():
            table.pop(getattr(getattr(torch.ops.aten, packet), overload), None)
    return table


def in_terms_of_others(
    op: Any, args: tuple[Any, ...], options: dict[str, Any], call: Callable[..., Any]
) -> Any:
    """Call an op, or those that it is replaced by as it is traced.

    Args:
        op: what is called.
        args: its operands.
        options: those with names.
        call: calls an op that is not replaced, as it is.
    """
    name = str(op)
    if name.startswith("aten._foreach_"):
        return _over_lists(op, args, options)
    if name.startswith("aten._fused_") and name.split(".")[1] in _FUSED:
        return _fused_update(op, args, options)
    if name in _OF_SCALERS:
        return _OF_SCALERS[name](*args, **options)
    if name == "aten.native_batch_norm.default":
        return _batch_norm(*args)
    if name == "aten.random_.from":  # no Python can call an op of that name
        return _random_between(*args)
    if name in _WRITING_COLLECTIVES:
        return _written(_WRITING_COLLECTIVES[name], args, call)
    return call(op, args, options)


# Lists of tensors


def _over_lists(op: Any, args: tuple[Any, ...], options: dict[str, Any]) -> list[Any] | None:
    """A ``_foreach_`` op as the op of its name, once for each tensor."""
    import torch

    packet, overload = str(op).removeprefix("aten._foreach_").rsplit(".", 1)
    single = _singles().get((packet, overload)) or getattr(torch.ops.aten, packet, None)
    if single is None:  # no such op writes its operand
        made = _over_lists(
            getattr(getattr(torch.ops.aten, f"_foreach_{packet[:-1]}"), overload), args, options
        )
        for t, new in zip(args[0], made or (), strict=True):
            t.copy_(new)
        return None
    schema = getattr(single, single.overloads()[0])._schema.arguments
    positional = sum(not each.kwarg_only for each in schema)
    named = [each.name for each in schema if each.kwarg_only]
    count = next(len(each) for each in args if isinstance(each, list | tuple) and len(each))
    made = []
    for i in range(count):
        values = [_nth(each, i) for each in args]
        given = {name: _nth(each, i) for name, each in options.items()}
        given.update(zip(named, values[positional:], strict=False))
        made.append(single(*values[:positional], **given))
    return None if packet.endswith("_") else made


def _nth(value: Any, i: int) -> Any:
    return value[i] if isinstance(value, list | tuple) else value


def _singles() -> dict[tuple[str, str], Any]:
    """Ops over lists whose op on one tensor has another name."""
    import torch

    aten = torch.ops.aten
    found: dict[tuple[str, str], Any] = {
        ("norm", "Scalar"): aten.linalg_vector_norm,
        ("copy_", "default"): aten.copy_,
    }
    for overload in ("Scalar", "ScalarList"):
        for end in ("", "_"):
            found[f"maximum{end}", overload] = getattr(aten, f"clamp_min{end}")
            found[f"minimum{end}", overload] = getattr(aten, f"clamp_max{end}")
    return found


# Fused optimisers

# Names of the lists of each fused op, in the order of the function of one tensor after the other.
_FUSED: dict[str, tuple[str, ...]] = {
    "_fused_adam_": ("params", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "state_steps"),
    "_fused_adamw_": ("params", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "state_steps"),
    "_fused_sgd_": ("params", "grads", "momentum_buffer_list"),
    "_fused_adagrad_": ("params", "grads", "state_sums", "state_steps"),
}


def _fused_update(op: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    """A fused update of an optimiser by torch's own update of one tensor after the other."""
    import torch

    name = str(op).split(".")[1]
    values = dict(zip([each.name for each in op._schema.arguments], args, strict=False)) | options
    values["params"] = values.pop("self")
    scale, found_inf = values.pop("grad_scale", None), values.pop("found_inf", None)
    for t in values["grads"] if scale is not None else ():
        t.div_(scale)
    for step in values.get("state_steps", ()):
        step.sub_(1)  # the fused kernels find it counted already
    counted = list(values.get("state_steps", ()))
    lists = [values.pop(each) for each in _FUSED[name]]
    kept = [t.clone() for each in lists for t in each] if found_inf is not None else []
    _update_of(name)(*lists, **values)
    for t, old in zip((t for each in lists for t in each), kept, strict=False):
        if not any(t is step for step in counted):
            t.copy_(torch.where(found_inf == 1, old, t))


def fused_call(func: Any, options: dict[str, Any]) -> Any:
    """The op of a fused optimiser that a function of torch calls with numbers of the data, which its schema has not."""
    import torch

    name = getattr(func, "__name__", "")
    if name not in _FUSED or not any(isinstance(each, torch.SymFloat) for each in options.values()):
        return None
    return getattr(torch.ops.aten, name).default


def _unscaled(grads: Any, found_inf: Any, inverse: Any) -> None:
    """Gradients times the inverse scale; ``found_inf`` is 1 where some element is not finite."""
    import torch

    for t in grads:
        found_inf.copy_(torch.maximum(found_inf, (~torch.isfinite(t)).any().to(found_inf.dtype)))
        t.mul_(inverse)


def _next_scale(
    scale: Any, tracker: Any, found_inf: Any, growth: float, backoff: float, interval: int
) -> Any:
    """A smaller scale after gradients that are not finite, a larger one after a number of steps without."""
    import torch

    is_found, count = found_inf != 0, tracker + 1
    grown = scale * growth
    is_due = ~is_found & (count == interval)
    larger = torch.where(torch.isfinite(grown), grown, scale)
    made = torch.where(is_found, scale * backoff, torch.where(is_due, larger, scale))
    zero = torch.zeros_like(tracker)
    tracker.copy_(torch.where(is_found | is_due, zero, count))
    return scale.copy_(made)


_OF_SCALERS: dict[str, Callable[..., Any]] = {
    "aten._amp_foreach_non_finite_check_and_unscale_.default": _unscaled,
    "aten._amp_update_scale_.default": _next_scale,
}


def _update_of(name: str) -> Callable[..., None]:
    """Torch's function that updates one tensor after the other, for the options of a fused op."""
    if name == "_fused_sgd_":
        return _sgd
    if name == "_fused_adagrad_":
        from torch.optim.adagrad import adagrad

        return functools.partial(adagrad, foreach=False, fused=False)
    adam = update_of_adam(decoupled=name == "_fused_adamw_")
    return functools.partial(adam, foreach=False, fused=False)


def _sgd(params: Any, grads: Any, buffers: Any, *, is_first_step: bool, **options: Any) -> None:
    """SGD whose momentum is there; it is the gradient in the first step."""
    from torch.optim.sgd import sgd

    if is_first_step and options["momentum"]:
        options["dampening"] = 0.0
        for buffer in buffers:
            buffer.zero_()
    sgd(params, grads, list(buffers) or [None] * len(params), foreach=False, fused=False, **options)


def _batch_norm(t: Any, weight: Any, bias: Any, mean: Any, var: Any, *options: Any) -> Any:
    """``native_batch_norm``, whose schema hides that it writes the running statistics, as the op that says so."""
    import torch

    legit = torch.ops.aten._native_batch_norm_legit
    return legit(t, weight, bias, *options) if mean is None else legit(t, weight, bias, mean, var, *options)


def _random_between(t: Any, low: int, high: int | None) -> Any:
    import torch

    if high is None:
        raise UnsupportedError(
            f"bridge.torch: random_ without an upper bound, got random_({low}, None), expected two bounds"
        )
    return t.copy_(torch.randint(low, high, t.shape, device=t.device))


# Functional collectives that write their operand all the same

_WRITING_COLLECTIVES = {
    f"_c10d_functional.{name}_.default": name for name in ("all_reduce", "broadcast", "all_reduce_coalesced")
}


def _written(name: str, args: tuple[Any, ...], call: Callable[..., Any]) -> Any:
    """The collective that does not write, and copies."""
    import torch

    functional = torch.ops._c10d_functional
    made = call(getattr(functional, name).default, args, {})
    old = args[0] if isinstance(made, list | tuple) else [args[0]]
    for t, new in zip(old, made if isinstance(made, list | tuple) else [made], strict=True):
        t.copy_(call(functional.wait_tensor.default, (new,), {}))
    return args[0]
