"""Numbers that a scheduler gives the optimiser: any number, which ranks share where their schedulers are alike.

``scheduler.step()`` is not run as a step is traced: it gives each option that it sets a number of its own, an input of
the step. What is proved holds for all values of these, so it does not matter what the scheduler counts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from popsr._support.text.shown import shown
from popsr.bridge._step.replaced import replaced
from popsr.bridge.torch._ranks.same import key_of
from popsr.bridge.torch._states.kept import kept_attributes
from popsr.bridge.torch._user.locations import current_place, shown_place
from popsr.errors import UnsupportedError

__all__ = ["NewNumbers", "Number", "Schedules"]

_STEPS = 4
"""Steps of a scheduler by which those of ranks are compared, beside their settings."""


@dataclass(frozen=True)
class Number:
    """An option of the optimiser at one time of the step.

    Attributes:
        group: number of the group of parameters.
        key: name of the option.
        part: place in it, of options that are several numbers.
        time: how often schedulers have set it since the step began.
        value: the number as it is now.
        origin: equal on ranks whose number is the same one in all steps.
    """

    group: int
    key: str
    part: int | None
    time: int
    value: float = field(compare=False)
    origin: Hashable = field(compare=False)

    @property
    def path(self) -> str:
        """The name for the user."""
        part = "" if self.part is None else f"[{self.part}]"
        when = f" ({self.time + 1})" if self.time else ""
        return f"optimizer.param_groups[{self.group}].{self.key}{part}{when}"


def _order(number: Number) -> tuple[int, int, str, int]:
    """The order of numbers, which is that of all ranks whichever of them sets them; those of time 0 come first."""
    return number.time, number.group, number.key, -1 if number.part is None else number.part


class NewNumbers(Exception):
    """A scheduler steps for which there are no inputs yet.

    Args:
        scheduler: the scheduler.
        time: how often schedulers have stepped before in the step.
    """

    def __init__(self, scheduler: Any, time: int) -> None:
        """A step of a scheduler."""
        super().__init__(type(scheduler).__name__)
        self.scheduler, self.time = scheduler, time


class Schedules:
    """The numbers that schedulers set in a step.

    Args:
        optimizer: the optimiser or None.
        where: the call, for messages.
    Attributes:
        numbers: one for each option and time, those with which a step begins first; these are states.
        stepped: the schedulers that have stepped in the trace, by identity.
    """

    def __init__(self, optimizer: Any, where: str) -> None:
        """None so far."""
        self._optimizer, self._where = optimizer, where
        self.numbers: list[Number] = []
        self.stepped: list[int] = []
        self._last: dict[tuple[int, str, int | None], Any] = {}

    @property
    def begun(self) -> list[Number]:
        """Numbers with which a step begins."""
        return [number for number in self.numbers if number.time == 0]

    def add(self, new: NewNumbers) -> None:
        """Add the numbers of a scheduler's step: those before the first one, too.

        Raises:
            UnsupportedError: the scheduler sets something else.
        """
        origin = self._origin(new.scheduler)
        for i, group in enumerate(self._optimizer.param_groups):
            for key, part in _options(new.scheduler, group):
                value = group[key] if part is None else group[key][part]
                is_tensor = hasattr(value, "item")
                for time in (0, new.time + 1):
                    made = Number(i, key, part, time, float(value), origin)
                    if made not in self.numbers and not (is_tensor and time == 0):
                        self.numbers.append(made)
        self.numbers.sort(key=_order)

    def add_unset(self, numbers: Sequence[Number]) -> bool:
        """Add numbers that a scheduler of another rank sets, which are constant here; True if there are some."""
        count = len(self.numbers)
        groups = [] if self._optimizer is None else self._optimizer.param_groups
        for each in numbers:
            if each not in self.numbers and each.group < len(groups) and each.key in groups[each.group]:
                option = groups[each.group][each.key]
                value = float(option if each.part is None else option[each.part])
                origin = ("unset", key_of(value))
                self.numbers.append(dataclasses.replace(each, value=value, origin=origin))
        self.numbers.sort(key=_order)
        return len(self.numbers) > count

    def _origin(self, scheduler: Any) -> Hashable:
        """Key by which ranks compare schedulers: their settings, and the numbers of the next steps."""
        groups = self._optimizer.param_groups
        options = [{key for key, _ in _options(scheduler, group)} for group in groups]
        before = [dict(group) for group in groups]
        settings, found = _plain(vars(scheduler)), []
        try:
            with kept_attributes(self._optimizer, *_all_of(scheduler)), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for _ in range(_STEPS):
                    scheduler.step()
                    found.append(
                        [
                            [_number(group[key]) for key in sorted(keys)]
                            for group, keys in zip(groups, options, strict=True)
                        ]
                    )
                after = [dict(group) for group in groups]
        finally:
            for group, old in zip(groups, before, strict=True):
                _put_back(group, old)
        for old, new, keys in zip(before, after, options, strict=True):
            changed = [k for k in new if k not in keys and k != "params" and _key(new[k]) != _key(old.get(k))]
            if changed:
                raise UnsupportedError(
                    f"{self._where}: a scheduler in the step sets {shown(changed[0])}, got "
                    f"{type(scheduler).__name__}, expected one of torch.optim.lr_scheduler that sets lr, or a "
                    "scheduler after the step"
                )
        return key_of(
            (
                settings,
                found,
                [
                    [_number(group[key]) for key in sorted(keys)]
                    for group, keys in zip(groups, options, strict=True)
                ],
            )
        )

    # While a step is traced

    @contextlib.contextmanager
    def traced(self, tensors: list[Any]) -> Iterator[None]:
        """Inside, options are the numbers of the step's inputs, and schedulers give the next ones."""
        from torch.optim import lr_scheduler, swa_utils

        self.stepped.clear()
        symbols = {number: t.item() for number, t in zip(self.numbers, tensors, strict=True)}
        self._set(symbols, 0)
        self._last = {(each.group, each.key, each.part): self._now(each) for each in self.numbers}
        kinds: list[Any] = [
            each
            for module in (lr_scheduler, swa_utils)
            for each in vars(module).values()
            if isinstance(each, type) and issubclass(each, lr_scheduler.LRScheduler)
        ]
        base: Any = lr_scheduler.LRScheduler
        methods: dict[str, Callable[..., Any]] = {
            "step": lambda scheduler, *args, **_: self._step(scheduler, args, symbols),
            "get_last_lr": lambda scheduler: [group["lr"] for group in self._groups_of(scheduler)],
        }
        own = [(kind, name, methods[name]) for kind in kinds for name in methods if name in vars(kind)]
        access = [(base, "__getattribute__", _refusing), (base, "__setattr__", _refusing_new)]
        with replaced([*own, *access]):
            yield

    def _step(self, scheduler: Any, args: tuple[Any, ...], symbols: dict[Number, Any]) -> None:
        if args or type(scheduler).__name__ == "ReduceLROnPlateau":
            raise UnsupportedError(
                f"{self._where}: a scheduler is given a value at {shown_place(current_place())}, got "
                f"{type(scheduler).__name__}.step of an argument, expected one that counts its steps, or a scheduler "
                "after the step"
            )
        groups = self._groups_of(scheduler)
        self._check_own()
        time = len(self.stepped)
        self.stepped.append(id(scheduler))
        for i, group in enumerate(groups):
            for key, part in _options(scheduler, group):
                if Number(i, key, part, time + 1, 0.0, None) not in symbols:
                    raise NewNumbers(scheduler, time)
        self._set(symbols, time + 1)

    def _groups_of(self, scheduler: Any) -> list[Any]:
        own = object.__getattribute__(scheduler, "optimizer")
        if own is not self._optimizer:
            raise UnsupportedError(
                f"{self._where}: a scheduler of another optimizer is used at {shown_place(current_place())}, got one "
                f"of {type(own).__name__}, expected one of the optimizer that the step is given"
            )
        groups: list[Any] = own.param_groups
        return groups

    def _set(self, symbols: dict[Number, Any], time: int) -> None:
        for number, symbol in symbols.items():
            if number.time != time:
                continue
            group = self._optimizer.param_groups[number.group]
            if number.part is not None:
                parts = list(group[number.key])
                parts[number.part] = symbol
                group[number.key] = tuple(parts)
            elif hasattr(group[number.key], "fill_"):
                group[number.key].fill_(symbol)
            else:
                group[number.key] = symbol
            self._last[number.group, number.key, number.part] = self._now(number)

    def _now(self, number: Number) -> tuple[Any, int]:
        """An option as it is, and how often it was written if it is a tensor."""
        value = self._optimizer.param_groups[number.group][number.key]
        value = value if number.part is None else value[number.part]
        return value, getattr(value, "_version", 0)

    def _check_own(self) -> None:
        """Refuse an option that the step sets beside its scheduler, which goes on from it in the next step.

        Raises:
            UnsupportedError: with the name of the option.
        """
        for number in self.numbers:
            now, last = self._now(number), self._last[number.group, number.key, number.part]
            if now[0] is not last[0] or now[1] != last[1]:
                raise UnsupportedError(
                    f"{self._where}: the step sets an option of the optimizer that its scheduler sets, too, got "
                    f"{shown(number.path)}, expected the scheduler alone, or a rate that the step sets anew each time "
                    "without one"
                )

    def left(self) -> list[Any]:
        """Numbers with which the next step begins, as tensors."""
        import torch

        if self.numbers:
            self._check_own()
        return [torch.full((), self._now(each)[0], dtype=torch.float64) for each in self.begun]

    def sets(self, group: int, key: str) -> bool:
        """True for an option that a scheduler sets in the step."""
        return any((number.group, number.key) == (group, key) for number in self.numbers)


def _refusing(scheduler: Any, name: str) -> Any:
    """Refuse to tell what a scheduler has counted: it goes on, and a later step may do something else.

    Raises:
        UnsupportedError: with the line that asks.
    """
    value = object.__getattribute__(scheduler, name)
    if name in ("__dict__", "state_dict") or not (callable(value) or name == "optimizer"):
        raise UnsupportedError(
            f"trace_step: a scheduler is made or asked in the step at {shown_place(current_place())}, got "
            f"{shown(name)} of {type(scheduler).__name__}, expected step() and get_last_lr() alone, of one "
            "that is made before"
        )
    return value


def _refusing_new(scheduler: Any, name: str, _value: Any) -> None:
    """Refuse to change a scheduler, whose numbers are those of its settings before the step.

    Raises:
        UnsupportedError: with the line.
    """
    raise UnsupportedError(
        f"trace_step: a scheduler is made or changed in the step at {shown_place(current_place())}, got {shown(name)} "
        f"of {type(scheduler).__name__}, expected step() and get_last_lr() alone, of one that is made before"
    )


def _all_of(scheduler: Any) -> Iterator[Any]:
    """A scheduler and those that it is made of."""
    yield scheduler
    for each in vars(scheduler).get("_schedulers", ()):
        yield from _all_of(each)


def _options(scheduler: Any, group: Any) -> list[tuple[str, int | None]]:
    """The options of a group of parameters that a scheduler sets, with the place of a number in one of several."""
    found: dict[tuple[str, int | None], None] = {("lr", None): None}
    for each in _attributes_of_all(scheduler):
        if each.get("cycle_momentum"):
            found["betas" if "betas" in group else "momentum", 0 if "betas" in group else None] = None
    return list(found)


def _attributes_of_all(scheduler: Any) -> Iterator[dict[str, Any]]:
    attributes: dict[str, Any] = object.__getattribute__(scheduler, "__dict__")
    yield attributes
    for each in attributes.get("_schedulers", ()):
        yield from _attributes_of_all(each)


def _plain(value: Any) -> Any:
    """Numbers and texts in attributes, lists and dictionaries; of schedulers inside theirs."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if hasattr(value, "lr_lambdas") or hasattr(value, "last_epoch"):
        return _plain(vars(value))
    return value if isinstance(value, bool | int | float | str | type(None)) else None


def _number(value: Any) -> Any:
    return float(value) if hasattr(value, "item") else value


def _key(value: Any) -> Hashable:
    return key_of(_number(value) if not hasattr(value, "shape") or value.numel() == 1 else None)


def _put_back(group: Any, old: dict[str, Any]) -> None:
    group.clear()
    group.update(old)
