"""Fake results of ops, of which torch finds the shape once for operands of one kind.

Layers of a model are alike: most ops of a step meet operands of shapes and types that the op has met before.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

__all__ = ["CONSTANTS", "Fakes", "has_known_shapes", "plain_types"]

CONSTANTS = (int, float, bool, str, complex, type(None))
"""Types of operands that are their own key."""


class _Uncommon(Exception):
    """An operand has more to it than a kind."""


@dataclass(frozen=True)
class _Written:
    """The result is the first operand, which the op writes."""


@dataclass(frozen=True)
class _New:
    """The result is a tensor of its own, or a view of the first operand.

    Attributes:
        is_view: True for a view.
        kind: its dtype, shape, strides, offset, and device.
    """

    is_view: bool
    kind: Any


class Fakes:
    """Fake results of the ops of one trace."""

    def __init__(self) -> None:
        """No op is met yet."""
        self._found: dict[Hashable, _Written | _New | None] = {}

    def result(self, op: Any, args: tuple[Any, ...], options: dict[str, Any], call: Any) -> Any:
        """The result of an op.

        Args:
            op: the op.
            args: its operands; tensors are fake.
            options: those with names.
            call: runs the op on fake tensors.
        """
        if not _is_common(op):
            return call(op, args, options)
        try:
            key = op, _defaults(), _key(args), _key(tuple(options.items()))
            found = self._found.get(key, self)
        except (_Uncommon, TypeError):
            return call(op, args, options)
        if type(found) is _Written:
            return args[0]
        if type(found) is _New:
            return _made(found, args[0] if args else None)
        made = call(op, args, options)
        if found is self:
            self._found[key] = _rule(op, args, made, key[2])
        return made


def _defaults() -> Hashable:
    """Everything beside the operands that the result of an op depends on."""
    import torch

    core: Any = torch._C
    return torch.get_default_dtype(), core._get_default_device(), torch.is_inference_mode_enabled()


def _key(value: Any) -> Hashable:
    """The kind of operands; their values where they are numbers."""
    kind = type(value)
    if kind in CONSTANTS:
        return kind, value
    if kind is tuple or kind is list:
        return kind, *map(_key, value)
    if kind is _fake():
        return _tensor_key(value)
    if kind in plain_types():
        return value  # type: ignore[no-any-return]
    raise _Uncommon


@functools.cache
def _fake() -> Any:
    from torch._subclasses.fake_tensor import FakeTensor

    return FakeTensor


@functools.cache
def plain_types() -> tuple[type, ...]:
    """Types of torch of which an operand may be without being a tensor."""
    import torch

    return torch.dtype, torch.device, torch.layout, torch.memory_format


def has_known_shapes(op: Any) -> bool:
    """True for an op whose shapes do not depend on data, and which no others are run for in its place."""
    import torch

    has_kernel: Any = torch._C._dispatch_has_kernel_for_dispatch_key
    of_data = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
    return not any(kind in op.tags for kind in of_data) and not has_kernel(
        op.name(), "CompositeImplicitAutograd"
    )


def _tensor_key(t: Any) -> Hashable:
    import torch

    if (
        t.constant is not None
        or t._has_symbolic_sizes_strides
        or t.layout is not torch.strided
        or t.is_quantized
    ):
        raise _Uncommon
    return (
        t.fake_mode,
        t.fake_device,
        t.dtype,
        t.shape,
        t.stride(),
        t.storage_offset(),
        t.untyped_storage().nbytes(),
        t.requires_grad,
        t.is_conj(),
        t.is_neg(),
        t.is_inference(),
    )


@functools.cache
def _is_common(op: Any) -> bool:
    """True for ops of ATen whose result is a tensor of its own, a view of the first operand, or this one written."""
    import torch

    schema = op._schema
    return (
        op.namespace == "aten"
        and len(schema.returns) == 1
        and str(schema.returns[0].type) == "Tensor"
        and has_known_shapes(op)
        and torch.Tag.inplace_view not in op.tags
        and not any(each.is_out for each in schema.arguments)
        and "lift" not in op.name()
        and op is not torch.ops.aten._unsafe_view.default
    )


def _rule(op: Any, args: tuple[Any, ...], made: Any, before: Hashable) -> _Written | _New | None:
    """The way in which the result of an op is made of its operands; None if torch makes it each time."""
    import torch

    if type(made) is not _fake():
        return None
    try:
        key = _tensor_key(made)
        is_kept = _key(args) == before  # no operand has other shapes now
    except _Uncommon:
        return None
    if op._schema.is_mutable:
        return _Written() if is_kept and args and made is args[0] else None
    if any(made is each for each in args) or made.is_conj() or made.is_neg() or made.is_inference():
        return None
    tensors = [each for each in args if isinstance(each, torch.Tensor)]
    if op.is_view and (len(tensors) != 1 or tensors[0] is not args[0]):
        return None
    kind = made.fake_mode, made.fake_device, made.dtype, made.shape, made.stride(), made.storage_offset()
    rule = _New(op.is_view, (*kind, made.requires_grad))
    again = _made(rule, args[0] if args else None)
    keys: Any = torch._C._dispatch_key_set
    return rule if _tensor_key(again) == key and keys(again) == keys(made) else None


def _made(rule: _New, source: Any) -> Any:
    import torch

    mode, device, dtype, shape, strides, offset, requires_grad = rule.kind
    core: Any = torch._C
    with core._DisableTorchDispatch():
        meta = torch.empty_strided(shape, strides, dtype=dtype, device="meta", requires_grad=requires_grad)
        if rule.is_view:
            meta.set_(source.untyped_storage(), offset, shape, strides)
    return _fake()(mode, meta, device)
