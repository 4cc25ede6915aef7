"""Checks of the tensors that a step leaves for the next: the same ones, of the same kind, in the same memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from popsr._support.text.shown import shown
from popsr.bridge.torch._ranks.same import key_of
from popsr.bridge.torch._states.storage import Sharing, overlaps
from popsr.errors import UnsupportedError

__all__ = ["changed_options", "check_groups", "check_leaves", "check_left"]


def check_left(
    model: Any,
    parameters: Mapping[str, Any],
    buffers: Mapping[str, Any],
    attributes: Mapping[str, Iterable[str]],
    where: str,
) -> None:
    """Refuse a step that adds or removes parameters and buffers, or gives a parameter hooks or attributes.

    Args:
        model: the module.
        parameters: its parameters when the step began, by name.
        buffers: its buffers then.
        attributes: names of the attributes that the parameters had.
        where: the call, for messages.
    Raises:
        UnsupportedError: with their paths.
    """
    now = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    added = [name for name in now if name not in parameters and name not in buffers]
    missing = [name for name in (*parameters, *buffers) if name not in now]
    for names, what in ((added, "adds"), (missing, "removes")):
        if names:
            raise UnsupportedError(
                f"{where}: the step {what} a parameter or buffer, got {shown(names[0])}, expected the same ones before "
                "and after each step; make it before the first step, such as by one call of the model"
            )
    for name, p in parameters.items():
        added_to = [key for key in vars(p) if key not in attributes[name] and not _is_torchs(key)]
        if added_to:
            raise UnsupportedError(
                f"{where}: the step sets an attribute of a parameter, got {shown(name)} with {shown(added_to[0])}, "
                "expected buffers of the model for what a step keeps"
            )
        if any(True for _ in _hooks_of(now[name])):
            raise UnsupportedError(
                f"{where}: the step leaves a hook on a parameter, to which the next step adds another, got "
                f"{shown(name)}, expected hooks that are registered before the step, or removed in it"
            )


def _is_torchs(key: str) -> bool:
    """True for an attribute that torch or popsr gives a traced tensor in a step."""
    return key.startswith("_popsr") or key.endswith(("_memo", "_memo_vc", "_epoch"))


def _hooks_of(p: Any) -> Iterator[Any]:
    """Hooks of a traced parameter that are not popsr's own."""
    for hooks in (p._backward_hooks, p._post_accumulate_grad_hooks):
        for hook in (hooks or {}).values():
            if not getattr(hook, "__module__", "").startswith("popsr."):
                yield hook


def check_leaves(leaves: Sequence[Any], values: Sequence[Any], shared: Sharing, where: str) -> None:
    """Refuse states that the step leaves with another shape or type, or in memory of others than before.

    Args:
        leaves: all, states first.
        values: the states after the step.
        shared: the leaves that share memory before it.
        where: the call, for messages.
    Raises:
        UnsupportedError: with the path.
    """
    locals_ = [getattr(value, "_local_tensor", value) for value in values]
    for leaf, value, local in zip(leaves, values, locals_, strict=False):
        before = _kind(leaf.local, leaf.trained)
        now = _kind(local, value.requires_grad)
        if before != now:
            raise UnsupportedError(
                f"{where}: the step leaves a state of another kind, got {shown(leaf.path)} of {now} after {before}, "
                "expected one shape and element type, gradients of the same tensors, and others detached"
            )
    for i, j in sorted(overlaps(locals_) ^ shared.followed):
        texts = " and ".join(shown(leaves[k].path) for k in dict.fromkeys((i, j)))
        when = "before" if (i, j) in shared.followed else "after"
        raise UnsupportedError(
            f"{where}: tensors share memory only {when} the step, got {texts}, expected the same memory in each step; "
            "copy_ changes values and leaves it"
        )


def _kind(t: Any, trained: bool) -> str:
    return (
        f"shape {tuple(t.shape)}, {str(t.dtype).removeprefix('torch.')}{', with gradient' if trained else ''}"
    )


def check_groups(
    groups: Sequence[Any], before: Sequence[Any], parameters: Sequence[Sequence[Any]], where: str
) -> None:
    """Refuse a step that changes which parameters an optimiser has, which the next step updates.

    Args:
        groups: of parameters, after the step.
        before: those with which it began.
        parameters: of each of these, when it began.
        where: the call, for messages.
    Raises:
        UnsupportedError: with the number of the group.
    """
    now = [list(map(id, group["params"])) for group in groups]
    if list(map(id, groups)) == list(map(id, before)) and now == [list(map(id, each)) for each in parameters]:
        return
    counts = [[len(each) for each in of] for of in (parameters, now)]
    raise UnsupportedError(
        f"{where}: the step changes which parameters the optimizer has, got groups of {counts[0]} and then of "
        f"{counts[1]}, expected the same ones in every step; requires_grad_(False) before trace_step leaves some out"
    )


def changed_options(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Options that are other ones by type or bits: their name, the value before and the value after."""
    import torch

    for key in dict.fromkeys((*old, *new)):
        before, after = old.get(key), new.get(key)
        both = isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor)
        if key != "params" and not both and key_of(before) != key_of(after):
            yield key, before, after
