"""Steps of optimisers in graphs: one operator over the tensors of a group, and one of a weight for proofs.

A compiled step is a call of ``popsr_sr::step_`` for each group. It does what an eager step does, with the options that
the group has as it runs: the compiler sees none of them, so that a schedule compiles nothing again. On fake tensors a
step is ``popsr_sr::stepped`` of each weight, which has the options as operands and writes nothing.
"""

from __future__ import annotations

import hashlib
import itertools
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from popsr._support.text.shown import shown
from popsr.errors import StateError
from popsr.sr._runs import Runs
from popsr.sr._torch.parts import local
from popsr.sr._torch.steps import COUNTED, Weight

__all__ = ["compiled_step", "is_changed_in_graph", "is_fake", "numbered", "traced_step"]

_OPTIMISERS: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_numbers = itertools.count()


def numbered(optimiser: Any) -> torch.Tensor:
    """The number by which a graph calls an optimiser: a tensor, so that others of its kind share what is compiled."""
    number = next(_numbers)
    _OPTIMISERS[number] = optimiser
    return torch.tensor(number, dtype=torch.int64, device="cpu")


# A compiled step


@torch.library.custom_op("popsr_sr::step_", mutates_args=("params", "states"))  # type: ignore[untyped-decorator, unused-ignore]
def _step_op(
    optimiser: torch.Tensor,
    group: int,
    places: Sequence[int],
    params: Sequence[torch.Tensor],
    grads: Sequence[torch.Tensor],
    states: Sequence[torch.Tensor],
    lr: torch.Tensor | None,
) -> None:
    own = _OPTIMISERS[int(optimiser)]
    groups = own.param_groups
    options, name = groups[group], type(own).__name__
    before = sum(len(each["params"]) for each in groups[:group])
    given, rows, count = iter(states), [], 0
    for place, p, grad in zip(places, params, grads, strict=True):
        original = options["params"][place]
        names = ("step", *own._names(options, original))
        state = dict(zip(names, given, strict=False))
        rows.append(Weight(before + place, p, grad, state, own._offset(original)))
        count += len(names)
    has_rate = isinstance(options["lr"], torch.Tensor)
    if len(states) != count or groups is not own._seen_groups or has_rate is not (lr is not None):
        raise _other(name)
    held = [list(row.state.values()) for row in rows]
    own._step_group(rows, options if lr is None else {**options, "lr": lr})
    for row, before_step in zip(rows, held, strict=True):
        if any(x is not y for x, y in zip(row.state.values(), before_step, strict=True)):
            raise _other(name)


@_step_op.register_fake  # type: ignore[untyped-decorator, unused-ignore]
def _fake(*_: Any) -> None:
    return None


def _other(name: str) -> StateError:
    return StateError(
        f"{name}.step: the optimizer is another one than when its step was compiled, got options or state of another "
        "kind, expected those of then: call torch.compiler.reset(), and one step that is not compiled"
    )


def compiled_step(optimiser: Any) -> None:
    """The step of an optimiser as the compiler sees it.

    Args:
        optimiser: what ``torch.compile`` traces; methods named ``..._while_compiling`` run as it does.
    """
    if optimiser._is_changed_while_compiling():
        torch._dynamo.graph_break()
    begun = []  # first of all groups: the compiler reads all states as it meets one
    for number, group in enumerate(optimiser._seen_groups):
        places = [k for k, p in enumerate(group["params"]) if p.grad is not None]
        begun.append((number, group, places, *optimiser._begin_while_compiling(number, places)))
    for number, group, places, names, has_rate in begun:
        params, states = [group["params"][k] for k in places], []
        for p, own in zip(params, names, strict=True):
            state = optimiser.state[p]
            states += [local(state[name]) for name in own]
        if places:
            _step_op(
                optimiser._handle,
                number,
                places,
                [local(p) for p in params],
                [local(p.grad) for p in params],
                states,
                group["lr"] if has_rate else None,
            )


def is_changed_in_graph(optimiser: Any) -> bool:
    """True if the function that is being compiled has set options before, which torch does only after its graph."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    groups = optimiser.param_groups
    try:
        effects: Any = InstructionTranslator.current_tx().output.side_effects
        own = effects.id_to_variable.get(id(optimiser))
        seen = [effects.id_to_variable.get(id(each)) for each in (groups, *groups)]
        return "param_groups" in effects.store_attr_mutations.get(own, ()) or any(
            each is not None and effects.is_modified(each) for each in seen
        )
    except AttributeError:  # of a version that keeps this elsewhere
        return True


# A step on fake tensors

_library: Any = torch.library
_LIBRARY = _library.Library("popsr_sr", "FRAGMENT")
_LIBRARY.define(
    "stepped(str text, Tensor p, Tensor grad, Tensor[] states, Tensor[] others, Scalar[] numbers) -> Tensor[]"
)


@_library.register_fake("popsr_sr::stepped")  # type: ignore[untyped-decorator, unused-ignore]
def _fake_stepped(_text: str, p: Any, _grad: Any, states: Sequence[Any], *_: Any) -> list[Any]:
    return [torch.empty_like(each) for each in (p, *states)]


def is_fake(t: Any) -> bool:
    """True for tensors that have shapes and no values."""
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(t, FakeTensor)


def traced_step(optimiser: Any, weights: Sequence[Weight], group: dict[str, Any]) -> None:
    """A step that a proof reads: of each weight its new values, as a function of all that they depend on.

    Args:
        optimiser: the optimiser.
        weights: parameters, or parts of them, that are fake tensors.
        group: their options, which may be numbers that are known only when the step runs.
    """
    names = [name for name in optimiser.defaults if name != "foreach"]
    given = list(_flat([(name, group[name]) for name in names if name in group]))
    tensors = [value for _, value in given if isinstance(value, torch.Tensor)]
    numbers = [_signed(value) for _, value in given if _is_number(value)]
    text = [
        (name, "") if isinstance(value, torch.Tensor) or _is_number(value) else (name, value)
        for name, value in given
    ]
    kind = f"{type(optimiser).__name__} {shown(optimiser.moments)} {text}"
    for number, p, grad, state, offset in weights:
        written = [value for name, value in state.items() if name not in COUNTED]
        read = [value for name, value in state.items() if name in COUNTED]
        made = torch.ops.popsr_sr.stepped(
            kind, p, grad, written, [*read, *tensors], [*numbers, _signed(number), *_numbers_of(offset)]
        )
        for old, new in zip((p, *written), made, strict=True):
            old.copy_(new)
        state["step"].add_(1)
        if "begun" in state:
            state["begun"].fill_(True)


def _flat(options: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    for name, value in options:
        if isinstance(value, (tuple, list)):
            yield from _flat([(f"{name}[{k}]", each) for k, each in enumerate(value)])
        else:
            yield name, value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, torch.SymInt, torch.SymFloat)) and not isinstance(value, bool)


def _numbers_of(offset: int | Runs) -> list[int]:
    """The numbers of elements, of a part of a parameter, as operands that are equal if all of these numbers are."""
    if not isinstance(offset, Runs):
        return [_signed(offset), 0]
    digest = hashlib.sha256(offset.table.tobytes()).digest()
    return [int.from_bytes(digest[k : k + 8], "big", signed=True) for k in (0, 8)]


def _signed(number: Any) -> Any:
    """A number of an operator, which has no integers of 64 bits without a sign."""
    return number - 2**64 if isinstance(number, int) and number >> 63 > 0 else number
