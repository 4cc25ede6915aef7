"""A step traced again from what its first trace left behind: all steps must run the same ops.

Attributes of modules, ``train()`` and ``eval()``, what the optimiser has in Python, closures and gradients are what the
first trace made of them; states are inputs of both. A tensor that the first trace made and kept is a constant where it
was made of constants alone, as caches of positions and masks are, and refused else.
"""

from __future__ import annotations

import contextlib
import itertools
import struct
import sys
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from popsr._support.text.shown import shown
from popsr.bridge._step.elsewhere import other_values
from popsr.bridge.torch._states.kept import kept_attributes, kept_variables, name_of_kept
from popsr.bridge.torch._states.leaves import StepCall, no_gradient
from popsr.bridge.torch._states.same_graph import Rows, difference
from popsr.bridge.torch._states.schedules import NewNumbers
from popsr.bridge.torch._states.storage import check_constants, check_writes
from popsr.bridge.torch._states.watch import fake_mode_of
from popsr.bridge.torch._tracing.capture import Recorded, WayEnds, record
from popsr.bridge.torch._tracing.choices import MOST_WAYS, Choices, next_scripts
from popsr.bridge.torch._tracing.watcher import WritesOutside
from popsr.bridge.torch._user.locations import current_place, is_users, place_of_node, shown_place
from popsr.errors import UnsupportedError

__all__ = ["record_steps"]


@dataclass
class _Trace:
    """One trace: its graph, what of it is compared, and what keeps its fake tensors' places in the graph."""

    recorded: Recorded
    rows: Rows
    tracer: Any
    left: dict[str, Hashable]
    gradients: list[str]


def record_steps(call: StepCall, where: str) -> tuple[list[Recorded], list[Any]]:
    """The ops of each step of a training run, on each way that it may take, and a value for each of their inputs.

    Gradients that a step leaves and the next one uses are states; the graph is then one of the steps after the first.

    Raises:
        UnsupportedError: a step runs other ops than the one before it, or leaves other tensors.
    """
    while True:
        try:
            return _recorded_steps(call, where)
        except NewNumbers as new:
            call.add_numbers(new)
        except WritesOutside as write:
            found = call.around.find(write.tensor)
            if not found:
                raise write.told from None
            call.add_states(found)


def _recorded_steps(call: StepCall, where: str) -> tuple[list[Recorded], list[Any]]:
    traces: list[_Trace] = []
    kept = _Kept(call, traces, where)
    states = [slot.container for slot in call.around.slots]
    with _no_fake_gradients(traces), kept_variables(call.model, call.step, states):
        start = call.plain_values()
        with kept_attributes(*call.objects):
            first = _all_ways(call, kept, where)
            left = list(dict.fromkeys(name for each in first for name in each.gradients))
            call.begin_with_gradients(left)
            with other_values(lambda: is_users(sys._getframe(2).f_code.co_filename)):
                found = _all_ways(call, kept, where)
            _check_settled([each.left for each in (first[-1], *found)], where)
            _check_all_same(first, found, where)
            settled = found[-1].left
            if any(each.rows.reads_gradients for each in found):
                call.keeps_gradients = True
                third = _all_ways(call, kept, where)
                _check_all_same(found, third, where)
            else:
                _check_gradients(first, found, where)
                found = first
        call.begin_with_gradients([])
        for each in (*first, *_from_start(call, kept, first, where)):
            changed = {name: value for name, value in each.left.items() if value != start.get(name)}
            _check_settled([settled, settled | changed], where)
        call.begin_with_gradients(left if call.keeps_gradients else [])
        return [each.recorded for each in found], call.inputs()


def _all_ways(call: StepCall, kept: _Kept, where: str) -> list[_Trace]:
    """A trace of each way that the step may take, each from what the one before left behind.

    Ways on which the user's statement raises are left out: no step ends there.
    """
    found: list[_Trace] = []
    ended: list[WayEnds] = []
    scripts: list[tuple[bool, ...]] = [()]
    while scripts:
        script = scripts.pop()
        choices = Choices(script, call.labels())
        try:
            found.append(_trace(call, kept, where, choices))
        except WayEnds as error:
            ended.append(error)
        scripts += next_scripts(choices.outcomes, script)
        if len(found) + len(ended) + len(scripts) > MOST_WAYS:
            raise UnsupportedError(
                f"{where}: Python asks more of the data than can be followed, got more than {MOST_WAYS} ways through "
                "one step, expected fewer branches, or torch.where"
            )
    if not found:
        raise ended[0].told
    return sorted(found, key=lambda each: [not outcome for outcome in each.recorded.outcomes])


def _trace(call: StepCall, kept: _Kept, where: str, choices: Choices) -> _Trace:
    call.kept = kept
    recorded = record(call, call.inputs(), choices)
    recorded.results, recorded.scheduled = call.results, tuple(call.schedules.stepped)
    check_constants(call.leaves, recorded.module, where)
    check_writes(call.shared, call.leaves, recorded.module, where)
    rows = Rows(recorded, [leaf.path for leaf in call.leaves], call.absent, kept.made)
    kept.traces.append(_Trace(recorded, rows, call.tracer, call.plain_values(), call.gradients))
    return kept.traces[-1]


def _from_start(call: StepCall, kept: _Kept, first: list[_Trace], where: str) -> list[_Trace]:
    """Traces of ways that the first step may take, which must be as after another way."""
    keeps, call.keeps_gradients = call.keeps_gradients, False
    made = []
    for each in first[1:]:
        with kept_attributes(*call.objects):
            again = _trace(call, kept, where, Choices(each.recorded.outcomes, call.labels()))
        _check_all_same([each], [again], where)
        made.append(again)
    call.keeps_gradients = keeps
    return made


def _check_all_same(first: list[_Trace], second: list[_Trace], where: str) -> None:
    for before, after in zip(first, second, strict=False):
        _check_same(before, after, where)
    if len(first) != len(second):
        raise UnsupportedError(
            f"{where}: one step and the next ask other things of the data, got {len(first)} and {len(second)} ways "
            "through the step, expected the same ones in every step"
        )


def _check_gradients(first: list[_Trace], second: list[_Trace], where: str) -> None:
    """Refuse gradients that only every other step on one way leaves."""
    for before, after in zip(first, second, strict=True):
        for name in before.gradients:
            if name not in after.gradients:
                raise no_gradient(name, where)


def _check_same(first: _Trace, second: _Trace, where: str) -> None:
    found = difference(first.rows, second.rows)
    if found is not None:
        places = ["the end" if n.op == "output" else shown_place(place_of_node(n)) for n in found]
        a, b = ("nothing" if n.op == "output" else n.target for n in found)
        texts = f"{a} and {b}" if a != b else f"other operands of {a}"
        raise UnsupportedError(
            f"{where}: one step and the next run different ops at {places[0]} and {places[1]}, got {texts}, expected "
            "the same ops in every step; what the first step alone does belongs before trace_step, such as in one "
            "call of the model"
        )


def _check_settled(lefts: Sequence[dict[str, Hashable]], where: str) -> None:
    """Refuse a step that counts in Python: a later one may do something else, such as each hundredth."""
    names = dict.fromkeys(name for left in lefts for name in left)
    for name, (one, other) in itertools.product(names, itertools.pairwise(lefts)):
        before, after = one.get(name), other.get(name)
        if before != after:
            raise UnsupportedError(
                f"{where}: the step changes {shown(name)} each time, got {_told(before)} and then {_told(after)}, "
                "expected nothing in Python that goes on changing: a later step may run other ops; count in a buffer "
                "of the model, or outside of the step"
            )


def _told(key: Any) -> str:
    kind, value = key if isinstance(key, tuple) else ("", key)
    if kind == "float":
        value = struct.unpack("<dd", value)[0]
    return str(value)[:40]


class _Kept:
    """Fake tensors of the traces before that the step uses again."""

    def __init__(self, call: StepCall, traces: list[_Trace], where: str) -> None:
        """Nothing is used yet."""
        self.traces = traces
        self.made: dict[int, Hashable] = {}
        self._call, self._where = call, where
        self._values: dict[Any, Any] = {}

    def __call__(self, t: Any) -> Any:
        """The values of a tensor that was made of constants alone.

        Raises:
            UnsupportedError: it was not.
        """
        from torch.fx.experimental.proxy_tensor import get_proxy_slot

        for trace in self.traces:
            slot = None if hasattr(t, "placements") else get_proxy_slot(t, trace.tracer, None)
            node = getattr(getattr(slot, "proxy", None), "node", None)
            if node in trace.rows.constants and not t.requires_grad:
                value = self._value(node, trace.recorded.module)
                self.made[id(value)] = trace.rows.constants[node]
                return value
        name = name_of_kept(self._call.model, t)
        text = f"{shown(name)} of shape {tuple(t.shape)}" if name else f"one of shape {tuple(t.shape)}"
        raise UnsupportedError(
            f"{self._where}: a tensor kept from the step before is used at {shown_place(current_place())}, got {text}, "
            "expected a buffer of the model for what changes, and what stays made by one call before trace_step"
        )

    def _value(self, node: Any, module: Any) -> Any:
        import torch
        from torch.utils._python_dispatch import _disable_current_modes

        if node not in self._values:
            operands = [self._value(each, module) for each in node.all_input_nodes]
            of = dict(zip(node.all_input_nodes, operands, strict=True))
            with _disable_current_modes(), torch.no_grad():
                if node.op == "get_attr":
                    made = getattr(module, node.target)
                else:
                    args, options = torch.fx.node.map_arg((node.args, dict(node.kwargs)), of.__getitem__)
                    made = node.target(*args, **options)
            self._values[node] = made
        return self._values[node]


@contextlib.contextmanager
def _no_fake_gradients(traces: list[_Trace]) -> Iterator[None]:
    """Take gradients of a trace off the tensors outside of the step that it reached."""
    import torch

    try:
        yield
    finally:
        for trace in traces:
            module = trace.recorded.module
            for node in module.graph.nodes:
                t = getattr(module, node.target, None) if node.op == "get_attr" else None
                if (
                    isinstance(t, torch.Tensor)
                    and t.requires_grad
                    and t.is_leaf
                    and fake_mode_of(t.grad) is not None
                ):
                    t.grad = None
