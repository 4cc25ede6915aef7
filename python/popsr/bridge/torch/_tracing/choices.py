"""Branches of Python that ask data: a step is traced once for each way that it may take.

A truth value of the data, such as ``if torch.isfinite(loss):``, is noted with the way that is taken, and the graph
returns it. Numbers that only logs hold are formatted, and ``max`` and ``min`` of numbers are ops.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from popsr.bridge._step.replaced import replaced
from popsr.bridge.torch._ranks.same import key_of
from popsr.bridge.torch._user.locations import current_place, is_users, shown_place
from popsr.errors import UnsupportedError

__all__ = ["MOST_WAYS", "Choices", "Numbering", "ends_with_error", "next_scripts"]

MOST_WAYS = 16
"""Ways through one step that are traced."""


class Numbering:
    """Numbers of values: equal numbers mean the same ops of operands of equal numbers.

    Args:
        labels: by place of a placeholder: inputs of one label count as equal; None of those that equal no other.
    """

    def __init__(self, labels: Sequence[Hashable | None]) -> None:
        """Nothing is numbered yet."""
        self._labels = iter(labels)
        self._table: dict[Hashable, int] = {}

    def of(self, nodes: Any, known: dict[Any, int]) -> None:
        """Add the numbers of nodes, in order, to those that are known."""
        import torch

        for node in nodes:
            if node in known:
                continue
            if node.op == "placeholder":
                label = next(self._labels, None)
                key: Hashable = ("input", len(self._table)) if label is None else ("label", label)
            elif node.op != "call_function" or _is_own(node.target, torch.Tag.nondeterministic_seeded):
                key = ("itself", id(node), len(self._table))
            else:
                key = (str(node.target), key_of((node.args, dict(node.kwargs)), known.__getitem__))
            known[node] = self._table.setdefault(key, len(self._table))


def _is_own(target: Any, random: Any) -> bool:
    """True for an op whose result is not a function of its operands."""
    namespace = getattr(target, "namespace", "")
    if "c10d" in namespace or namespace == "_dtensor" or random in getattr(target, "tags", ()):
        return True
    return "empty" in str(target)


class Choices:
    """The ways that one trace takes.

    Args:
        script: of the first truth values that it asks for; further ones are taken to be true.
        labels: by input, as of ``Numbering``: counters of one label have one value.
    Attributes:
        outcomes: the ways that were taken, of truth values that differ.
        asked: each question as the number of its truth value, and the symbol.
    """

    def __init__(self, script: Sequence[bool] = (), labels: Sequence[Hashable | None] = ()) -> None:
        """Nothing is asked yet."""
        self._script, self._numbering = script, Numbering(labels)
        self._known: dict[Any, int] = {}
        self._numbers: dict[int, int] = {}
        self._tracer: Any = None
        self._environment: Any = None
        self.outcomes: list[bool] = []
        self.asked: list[tuple[int, Any]] = []

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Inside, questions of the graph that is being traced are answered."""
        from torch._guards import detect_fake_mode
        from torch.fx.experimental.proxy_tensor import get_innermost_proxy_mode
        from torch.fx.experimental.sym_node import SymNode

        mode: Any = get_innermost_proxy_mode()
        self._tracer, self._environment = mode.tracer, getattr(detect_fake_mode(), "shape_env", None)
        node: Any = SymNode
        kept = {name: getattr(node, name) for name in ("guard_bool", "guard_int", "guard_float")}

        def guard_bool(symbol: Any, file: str, line: int) -> bool:
            found = self._recorded(symbol)
            return bool(kept["guard_bool"](symbol, file, line)) if found is None else self._choose(*found)

        def number(name: str) -> Callable[..., Any]:
            def guard(symbol: Any, file: str, line: int) -> Any:
                if self._recorded(symbol) is not None:
                    raise UnsupportedError(
                        f"bridge.torch: Python needs a value of the data at {shown_place(current_place())}, got "
                        f"{name.removeprefix('guard_')}(...), expected control flow and shapes that do not depend on "
                        "data, and .item() in logs as it is"
                    )
                return kept[name](symbol, file, line)

            return guard

        guards = {
            "guard_bool": guard_bool,
            "guard_int": number("guard_int"),
            "guard_float": number("guard_float"),
        }
        with (
            replaced((node, name, guard) for name, guard in guards.items()),
            _formatted(),
            _extremes_traced(),
        ):
            yield

    def _recorded(self, symbol: Any) -> tuple[Any, Any] | None:
        """The node of the graph that makes a number, and the number; None of one that is known."""
        import torch
        from torch.fx.experimental.proxy_tensor import get_innermost_proxy_mode, get_proxy_slot

        mode: Any = get_innermost_proxy_mode()
        if mode is None or mode.tracer is not self._tracer:
            return None  # inside of a branch or loop that is recorded as it stands
        kinds: dict[type, Any] = {bool: torch.SymBool, int: torch.SymInt, float: torch.SymFloat}
        value = kinds[symbol.pytype](symbol)
        slot: Any = get_proxy_slot(value, self._tracer, None)
        if slot is None and symbol.shape_env is not self._environment:
            raise UnsupportedError(
                f"bridge.torch: a number kept from the step before is used at {shown_place(current_place())}, expected "
                "a buffer of the model for what changes"
            )
        return None if slot is None else (slot.force().node, value)

    def _choose(self, node: Any, value: Any) -> bool:
        self._numbering.of(node.graph.nodes, self._known)
        own = self._known[node]
        if own not in self._numbers:
            number = self._numbers[own] = len(self.outcomes)
            self.outcomes.append(self._script[number] if number < len(self._script) else True)
        number = self._numbers[own]
        self.asked.append((number, value))
        return self.outcomes[number]


def next_scripts(outcomes: Sequence[bool], script: Sequence[bool]) -> list[tuple[bool, ...]]:
    """The ways that a trace leaves open: at each truth value beyond its script the other one."""
    return [(*outcomes[:i], not outcomes[i]) for i in range(len(script), len(outcomes))]


def ends_with_error(error: BaseException) -> bool:
    """True for an error that a statement of the user raises, after which the step does not go on."""
    inner: TracebackType | None = error.__traceback__
    while inner is not None and inner.tb_next is not None:
        inner = inner.tb_next
    if inner is None:
        return False
    code = inner.tb_frame.f_code
    is_raised = dis.opname[code.co_code[inner.tb_lasti]] == "RAISE_VARARGS"
    return is_raised and (is_users(code.co_filename) or code.co_filename.endswith("clip_grad.py"))


@contextlib.contextmanager
def _formatted() -> Iterator[None]:
    """Let numbers of the data be written into texts, as symbols."""
    import torch

    kinds: list[Any] = [torch.SymFloat, torch.SymInt, torch.SymBool]
    try:
        for kind in kinds:
            kind.__format__ = lambda self, _spec: str(self)
        yield
    finally:
        for kind in kinds:
            del kind.__format__


@contextlib.contextmanager
def _extremes_traced() -> Iterator[None]:
    """Let ``max`` and ``min`` of numbers of the data be ops."""
    import torch

    symbols = (torch.SymFloat, torch.SymInt)
    pairs: Mapping[str, Callable[[Any, Any], Any]] = {"max": torch.sym_max, "min": torch.sym_min}
    kept = {name: getattr(builtins, name) for name in pairs}

    def extreme(name: str) -> Callable[..., Any]:
        def apply(*values: Any, **options: Any) -> Any:
            several = values[0] if len(values) == 1 and type(values[0]) in (list, tuple) else values
            if options or not any(isinstance(each, symbols) for each in several):
                return kept[name](*values, **options)
            found = several[0]
            for each in several[1:]:
                found = pairs[name](found, each)
            return found

        return apply

    with replaced((builtins, name, extreme(name)) for name in pairs):
        yield
