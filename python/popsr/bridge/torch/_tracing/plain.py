"""Ops of plain tensors and numbers, recorded without the parts of ``make_fx`` that other ops need.

Most ops of a step are such. ``make_fx`` takes seven times as long for one of them as running it on fake tensors does.
The nodes are the same, with the same values beside them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["plain_ops"]

_NUMBERS = (int, float, bool, str, complex, type(None))


class _Other(Exception):
    """An operand is neither a traced tensor nor a number."""


def plain_ops(
    table: Mapping[Any, Callable[..., Any]] | None = None,
) -> contextlib.AbstractContextManager[Any]:
    """Inside, plain ops are recorded by the ``make_fx`` around it, the others handed on to it.

    Args:
        table: decompositions that this ``make_fx`` applies.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.fx.experimental import proxy_tensor as tracing
    from torch.utils._python_dispatch import TorchDispatchMode

    decompositions = table or {}
    device_of = torch.ops.prim.device.default
    plain_types = (torch.dtype, torch.device, torch.layout, torch.memory_format)

    def node_of(value: Any, tracer: Any) -> Any:
        kind = type(value)
        if kind in _NUMBERS or isinstance(value, plain_types):
            return value
        if kind is list or kind is tuple:
            return kind([node_of(each, tracer) for each in value])
        slot = tracer.tensor_tracker.get(value) if isinstance(value, FakeTensor) else None
        if slot is None or slot.constant is not None:
            raise _Other
        return slot.proxy.node

    class PlainOps(TorchDispatchMode):
        supports_higher_order_operators = True

        def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            options = kwargs or {}
            if op is device_of and isinstance(args[0], FakeTensor):
                return args[0].fake_device  # more than half of all calls ask for it
            if op in decompositions:
                with self:
                    return decompositions[op](*args, **options)
            if not _is_plain(op):
                return op(*args, **options)
            mode = tracing.get_proxy_mode()
            if mode is None:  # DTensor asks for shapes of tensors that nobody records
                return op(*args, **options)
            tracer: Any = mode.tracer
            try:
                operands = (
                    node_of(args, tracer),
                    {name: node_of(value, tracer) for name, value in options.items()},
                )
            except _Other:
                return op(*args, **options)
            node = tracer.create_node("call_function", op, *operands, tracer.graph._target_to_str(_name(op)))
            with tracing.disable_proxy_modes_tracing():
                made = op(*args, **options)
            proxy = tracer.proxy(node)
            if isinstance(made, FakeTensor):
                node.meta["val"] = tracing.snapshot_fake(made)
                tracing.set_proxy_slot(made, tracer, tracing._ProxyTensor(proxy, None))
            else:
                tracing.track_tensor_tree(made, proxy, constant=None, tracer=tracer)
            return made

    return PlainOps()


@functools.cache
def _name(op: Any) -> str:
    name: str = op.overloadpacket.__name__
    return name


@functools.cache
def _is_plain(op: Any) -> bool:
    """True for ops that ``make_fx`` records as they are, and that make nothing but tensors of known shapes."""
    import torch

    if not isinstance(op, torch._ops.OpOverload) or op.namespace not in ("aten", "_c10d_functional"):
        return False
    has_kernel: Any = torch._C._dispatch_has_kernel_for_dispatch_key
    kinds = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
    return (
        bool(op._schema.returns)
        and all("Tensor" in str(each.type) for each in op._schema.returns)
        and not any(kind in op.tags for kind in kinds)
        and not has_kernel(op.name(), "CompositeImplicitAutograd")
        and op is not torch.ops.aten.lift_fresh.default
    )
