"""Ops of plain tensors and numbers, recorded without the parts of ``make_fx`` that other ops need.

Most ops of a step are such. ``make_fx`` takes seven times as long for one of them as running it on fake tensors does.
The nodes are the same, with the same values beside them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from popsr.bridge.torch._tracing.fakes import CONSTANTS, Fakes, has_known_shapes, plain_types
from popsr.bridge.torch._tracing.numbers import Numbers

__all__ = ["plain_ops"]

Call = Callable[[Any, Any, Any], Any]

_names: dict[Any, str] = {}


class _Other(Exception):
    """An operand is neither a traced tensor nor a number."""


@contextlib.contextmanager
def plain_ops(table: Mapping[Any, Callable[..., Any]] | None = None) -> Iterator[Call]:
    """Inside, plain ops and numbers are recorded by the ``make_fx`` around it, the others handed on to it.

    Gives a function that calls an op as a mode inside of this one does, in less time.

    Args:
        table: decompositions that this ``make_fx`` applies.
    """
    numbers = Numbers()
    mode = _mode(table or {}, numbers)
    with numbers.traced(), mode:
        yield mode.call


def _mode(decompositions: Mapping[Any, Callable[..., Any]], numbers: Numbers) -> Any:
    import torch
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.fx.experimental import proxy_tensor as tracing
    from torch.utils._python_dispatch import TorchDispatchMode

    device_of = torch.ops.prim.device.default
    item_of = torch.ops.aten._local_scalar_dense.default
    # Modes of functions see the step's own calls, which this is none of.
    without_functions: Any = torch._C.DisableTorchFunction
    fakes = Fakes()

    def unrecorded(op: Any, args: Any, options: Any) -> Any:
        with tracing.disable_proxy_modes_tracing():
            return op(*args, **options)

    def node_of(value: Any, tracer: Any) -> Any:
        kind = type(value)
        if kind is FakeTensor:
            slot = tracer.tensor_tracker.get(value)
            if slot is None or slot.constant is not None:
                raise _Other
            return slot.proxy.node
        if kind in CONSTANTS or isinstance(value, plain_types()):
            return value
        if kind is list or kind is tuple:
            return kind([node_of(each, tracer) for each in value])
        node = numbers.node_of(value, tracer) if kind is torch.SymFloat else None
        if node is None:
            raise _Other
        return node

    class PlainOps(TorchDispatchMode):
        supports_higher_order_operators = True

        def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            options = kwargs or {}
            if op is device_of and isinstance(args[0], FakeTensor):
                return args[0].fake_device  # more than half of all calls ask for it
            if op in decompositions:
                with self:
                    return decompositions[op](*args, **options)
            return self.call(op, args, options)

        def call(self, op: Any, args: Any, options: Any) -> Any:
            mode = tracing.get_proxy_mode() if _is_plain(op) or op is item_of else None
            if mode is None:  # DTensor asks for shapes of tensors that nobody records
                return op(*args, **options)
            tracer: Any = mode.tracer
            try:
                operands = node_of(args, tracer)
                named = {name: node_of(value, tracer) for name, value in options.items()}
            except _Other:
                return op(*args, **options)
            if op is item_of:
                t = args[0]
                if t.dtype.is_floating_point and t.constant is None:
                    return numbers.read(op, operands[0], tracer, t.fake_mode.shape_env)
                return op(*args, **options)
            node = tracer.create_node("call_function", op, (), {}, _name(op, tracer.graph))
            node.args, node.kwargs = operands, named  # without torch's search for symbols among them
            if _is_pointwise(op) and torch.SymFloat in map(type, (*args, *options.values())):
                args = tuple(map(_any_number, args))
                options = {name: _any_number(value) for name, value in options.items()}
            with without_functions():
                made = fakes.result(op, args, options, unrecorded)
                is_fake = isinstance(made, FakeTensor)
                if is_fake:
                    node.meta["val"] = tracing.snapshot_fake(made)  # its memory tells views of it
            proxy = tracer.proxy(node)
            if is_fake:
                tracing.set_proxy_slot(made, tracer, tracing._ProxyTensor(proxy, None))
            else:
                tracing.track_tensor_tree(made, proxy, constant=None, tracer=tracer)
            return made

    return PlainOps()


def _any_number(value: Any) -> Any:
    """A number in place of a symbol, for shapes and types that are those of any number."""
    import torch

    return 0.5 if type(value) is torch.SymFloat else value


@functools.cache
def _is_pointwise(op: Any) -> bool:
    """True for ops whose shapes and types do not depend on numbers."""
    import torch

    return torch.Tag.pointwise in op.tags


def _name(op: Any, graph: Any) -> str:
    """The name of an op's nodes, as ``make_fx`` names them."""
    if op not in _names:
        _names[op] = graph._target_to_str(op.overloadpacket.__name__)
    return _names[op]


@functools.cache
def _is_plain(op: Any) -> bool:
    """True for ops that ``make_fx`` records as they are, and that make nothing but tensors of known shapes."""
    import torch

    if not isinstance(op, torch._ops.OpOverload) or op.namespace not in ("aten", "_c10d_functional"):
        return False
    return (
        bool(op._schema.returns)
        and all("Tensor" in str(each.type) for each in op._schema.returns)
        and has_known_shapes(op)
        and op is not torch.ops.aten.lift_fresh.default
    )
