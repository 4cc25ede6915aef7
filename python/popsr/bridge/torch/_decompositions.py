"""Ops that become others as a step is traced: lists of tensors, fused optimisers, and what ATen's core set lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from popsr.errors import UnsupportedError

__all__ = ["batch_norm", "decompositions", "fused_update", "over_lists"]

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
    """Torch's decompositions to the core set and a few more, without those that have rules."""
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


# Lists of tensors


def over_lists(op: Any, args: tuple[Any, ...], options: dict[str, Any]) -> list[Any] | None:
    """A ``_foreach_`` op as the op of its name, once for each tensor."""
    import torch

    packet, overload = str(op).removeprefix("aten._foreach_").rsplit(".", 1)
    single = _singles().get((packet, overload)) or getattr(torch.ops.aten, packet, None)
    if single is None:  # no such op writes its operand
        made = over_lists(
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


def fused_update(op: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    """A fused update of an optimiser by torch's own update of one tensor after the other."""
    from torch.optim.adam import adam

    name = str(op).split(".")[1]
    values = dict(zip([each.name for each in op._schema.arguments], args, strict=False)) | options
    values["params"] = values.pop("self")
    for unused in ("grad_scale", "found_inf"):
        if values.pop(unused, None) is not None:
            raise UnsupportedError(
                f"bridge.torch: {name} cannot be read, got {unused}, expected gradients that are scaled back before it"
            )
    for step in values["state_steps"]:
        step.sub_(1)  # the fused kernels find it counted already
    order = ("params", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "state_steps")
    lists = [values.pop(each) for each in order]
    values |= {"foreach": False, "fused": False, "decoupled_weight_decay": name == "_fused_adamw_"}
    adam(*lists, **values)


def batch_norm(t: Any, weight: Any, bias: Any, mean: Any, var: Any, *options: Any) -> Any:
    """``native_batch_norm``, whose schema hides that it writes the running statistics, as the op that says so."""
    import torch

    legit = torch.ops.aten._native_batch_norm_legit
    return legit(t, weight, bias, *options) if mean is None else legit(t, weight, bias, mean, var, *options)
