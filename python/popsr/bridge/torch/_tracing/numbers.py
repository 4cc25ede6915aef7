"""Numbers of the data in Python, such as ``step.item()`` and what an optimiser computes of it, as nodes of a graph.

Torch keeps an expression of sympy for each of them, to decide shapes and guards, which takes longer than all the rest.
Floating-point numbers decide neither, so each is a symbol of its own here. No two are taken for equal, whatever they
are computed from: NaN is not equal to itself.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import math
import operator
from collections.abc import Iterator
from typing import Any

from popsr.bridge._step.replaced import replaced

__all__ = ["Numbers"]

_MADE = (operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.neg)
_COMPARED = {
    operator.eq: "Eq",
    operator.ne: "Ne",
    operator.lt: "Lt",
    operator.le: "Le",
    operator.gt: "Gt",
    operator.ge: "Ge",
}
# Torch counts its own from 0; a number of the trace before is none of this one.
_symbols = itertools.count(1_000_000)


class Numbers:
    """The floating-point numbers of one trace."""

    def __init__(self) -> None:
        """No number is made yet."""
        from torch.fx.experimental import sym_node
        from torch.utils._traceback import CapturedTraceback

        module: Any = sym_node

        class Number(module.SymNode):
            text = ""

            def str(self) -> str:
                return self.text

            def expect_true(self, *_: Any) -> bool:
                return True  # what a step demands of its data holds in all steps that go on

        self._node: Any = Number
        self._no_hint = getattr(module, "_NO_HINT", None)
        self._texts = itertools.count()
        self._stack = CapturedTraceback.extract()

    @contextlib.contextmanager
    def traced(self) -> Iterator[None]:
        """Inside, what Python computes of these numbers alone is recorded without expressions."""
        from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode

        mode: Any = ProxyTorchDispatchMode
        plain, computed = mode.__sym_dispatch__, self._computed

        def dispatch(mode: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            made = computed(mode.tracer, func, args)
            return plain(mode, func, types, args, kwargs) if made is None else made

        with replaced([(mode, "__sym_dispatch__", dispatch)]):
            yield

    def node_of(self, value: Any, tracer: Any) -> Any:
        """The node that makes one of these numbers; None for others."""
        slot = tracer.symnode_tracker.get(value) if isinstance(value.node, self._node) else None
        return None if slot is None else slot.force().node

    def read(self, op: Any, node: Any, tracer: Any, environment: Any) -> Any:
        """The number that is the only element of a tensor.

        Args:
            op: the op that reads it.
            t: the fake tensor.
            node: the node that makes it.
            tracer: records the op.
            environment: torch's symbols of the trace.
        """
        name = tracer.graph._target_to_str(op.overloadpacket.__name__)
        made = tracer.create_node("call_function", op, (node,), {}, name)
        return self._number(made, self._symbol(environment), float, environment, tracer)

    def _computed(self, tracer: Any, func: Any, args: tuple[Any, ...]) -> Any:
        """A number that is computed of others, or their comparison; None if torch computes it."""
        import torch

        if func not in _MADE and func not in _COMPARED:
            return None
        environment, operands, sides = None, [], []
        for each in args:
            is_symbol = type(each) is torch.SymFloat
            if not is_symbol and (type(each) not in (int, float) or not math.isfinite(each)):
                return None
            node = self.node_of(each, tracer) if is_symbol else each
            if node is None:
                return None
            operands.append(node)
            sides.append(each.node.expr if is_symbol else each)
            environment = each.node.shape_env if is_symbol else environment
        if func is operator.mul:
            for one, other in (args, args[::-1]):
                if type(one) is int and one == 1:
                    return other  # as torch does
        compared = _COMPARED.get(func)
        if compared is None:
            made, kind = self._symbol(environment), float
        else:
            made, kind = self._compare(compared, sides), bool
        node = tracer.create_node("call_function", func, tuple(operands), {})
        return self._number(node, made, kind, environment, tracer)

    def _compare(self, name: str, sides: list[Any]) -> Any:
        """A comparison that is not decided."""
        sympy: Any = importlib.import_module("sympy")  # has no types
        return getattr(sympy, name)(*map(sympy.sympify, sides), evaluate=False)

    def _symbol(self, environment: Any) -> Any:
        """A symbol that stands for any number."""
        from torch.utils._sympy.symbol import SymT, make_symbol
        from torch.utils._sympy.value_ranges import ValueRanges

        symbol = make_symbol(SymT.UNBACKED_FLOAT, next(_symbols))
        environment.var_to_range[symbol] = ValueRanges.unknown()
        environment.var_to_stack[symbol] = self._stack  # shown in torch's own errors
        return symbol

    def _number(self, node: Any, made: Any, kind: type, environment: Any, tracer: Any) -> Any:
        import torch
        from torch.fx.experimental import proxy_tensor as tracing

        symbol = self._node(made, environment, kind, self._no_hint)
        symbol.text = f"number{next(self._texts)}"
        value = torch.SymFloat(symbol) if kind is float else torch.SymBool(symbol)
        node.meta["val"] = value
        proxy = tracer.proxy(node)
        tracing.set_proxy_slot(value, tracer, tracing.thunkify(tracer, lambda: proxy))
        return value
