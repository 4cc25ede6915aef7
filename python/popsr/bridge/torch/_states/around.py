"""Tensors outside of the model that a step changes: of other modules, of gradient scalers, in lists and dictionaries.

They become states once the step is seen to write them: averages of the weights, scales of the loss.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from popsr.bridge.torch._states.kept import captured, functions_of, is_of_user
from popsr.bridge.torch._states.schedules import Number
from popsr.bridge.torch._tracing.generators import reachable
from popsr.bridge.torch._user.locations import is_users
from popsr.errors import UnsupportedError

__all__ = ["Around", "Beside", "Slot"]

_SCALER = ("_scale", "_growth_tracker")


@dataclass(frozen=True)
class Slot:
    """A tensor in a container of Python.

    Attributes:
        path: its name for the user.
        container: the list or dictionary.
        key: the place in it.
        tensor: what is there.
    """

    path: str
    container: Any
    key: Any
    tensor: Any


@dataclass
class Beside:
    """States and inputs of a step beside its model, its optimiser and its batch.

    Attributes:
        paths: of tensors that are states.
        numbers: of schedulers.
    """

    paths: list[str] = field(default_factory=list)
    numbers: list[Number] = field(default_factory=list)

    def adds_to(self, found: Beside) -> bool:
        """Add these to others; True if some are new."""
        paths = [each for each in self.paths if each not in found.paths]
        numbers = [each for each in self.numbers if each not in found.numbers]
        found.paths += paths
        found.numbers += numbers
        return bool(paths or numbers)


class Around:
    """The surroundings of a step.

    Args:
        step: the user's function.
        model: the module.
        optimizer: the optimiser or None.
        batch: what the step takes besides.
        where: the call, for messages.
    Attributes:
        slots: tensors that are states.
        objects: scalers, whose attributes a step changes.
    """

    def __init__(self, step: Any, model: Any, optimizer: Any, batch: Sequence[Any], where: str) -> None:
        """Scalers alone are states so far."""
        import torch

        self._root = (inspect.unwrap(step), model, optimizer, list(batch))
        self._model, self._where = model, where
        found = [each for each in self._reached() if isinstance(each, torch.amp.GradScaler)]
        for each in found:
            _check_on(each, where)
        self.objects = [each for each in found if each.is_enabled()]
        self.slots: list[Slot] = []
        names = self._names() if self.objects else {}
        for number, scaler in enumerate(self.objects):
            name = names.get(id(scaler)) or ("scaler" if number == 0 else f"scaler {number + 1}")
            start = (
                torch.full((), scaler.get_scale()),
                torch.full((), scaler._init_growth_tracker, dtype=torch.int32),
            )
            for key, first in zip(_SCALER, start, strict=True):
                t = getattr(scaler, key)
                self.slots.append(Slot(f"{name}.{key[1:]}", vars(scaler), key, first if t is None else t))

    def _reached(self) -> Iterator[Any]:
        """Objects that the step refers to, the nearest first."""
        return reachable(self._root, self._root[0])

    def find(self, t: Any) -> list[Slot]:
        """The slots of a tensor, with those of its module; none if nothing that the step reaches has it."""
        return next(self._having(lambda slot: getattr(slot.tensor, "_local_tensor", slot.tensor) is t), [])

    def named(self, paths: Sequence[str]) -> list[Slot]:
        """The slots of some paths that are no states yet, in that order, with those beside them."""
        found = [slot for slots in self._having(lambda slot: slot.path in paths) for slot in slots]
        order = {path: number for number, path in enumerate(paths)}
        return sorted(found, key=lambda slot: order.get(slot.path, len(order)))

    def _having(self, fits: Callable[[Slot], bool]) -> Iterator[list[Slot]]:
        """The slots of each module, list or dictionary that has a fitting one, and none that is a state."""
        import torch

        own = {id(module) for module in self._model.modules()}
        taken = {id(slot.tensor) for slot in self.slots}
        names = self._names()
        for each in self._reached():
            if isinstance(each, torch.nn.Module) and id(each) not in own:
                slots = list(_of_module(each, names.get(id(each)) or type(each).__name__))
            elif type(each) in (dict, list) and id(each) in names:
                items = each.items() if isinstance(each, dict) else enumerate(each)
                name = names[id(each)]
                slots = [
                    Slot(f"{name}[{key!r}]", each, key, value)
                    for key, value in list(items)
                    if isinstance(value, torch.Tensor)
                ]
            else:
                continue
            if any(map(fits, slots)) and not any(id(slot.tensor) in taken for slot in slots):
                yield slots

    def _names(self) -> dict[int, str]:
        """Names of what functions of the user name, and of attributes of the model, its optimiser and their objects."""
        found: dict[int, str] = {}
        for prefix, module in self._model.named_modules():
            for name, value in vars(module).items():
                if not name.startswith("_"):
                    found.setdefault(id(value), f"{prefix}.{name}" if prefix else name)
        for name, value in captured(functions_of(self._model, self._root[0])):
            found.setdefault(id(value), name)
        step = self._root[0]
        if inspect.isfunction(step) and is_users(step.__code__.co_filename):
            given = list(inspect.signature(step).parameters)[-len(self._root[3]) :] if self._root[3] else []
            for name, value in zip(given, self._root[3], strict=False):
                found.setdefault(id(value), name)
        for each in self._reached():
            name = "optimizer" if each is self._root[2] else found.get(id(each))
            if name is not None and (each is self._root[2] or is_of_user(each)):
                for key, value in vars(each).items():
                    found.setdefault(id(value), f"{name}.{key}")
        return found

    @contextlib.contextmanager
    def replaced(self, tensors: Sequence[Any]) -> Iterator[None]:
        """Inside, the slots have other tensors."""
        kept = [
            slot.container.get(slot.key) if isinstance(slot.container, dict) else slot.container[slot.key]
            for slot in self.slots
        ]
        scalers = [dict(vars(each)["_per_optimizer_states"]) for each in self.objects]
        try:
            for slot, t in zip(self.slots, tensors, strict=True):
                slot.container[slot.key] = t
            yield
        finally:
            for slot, t in zip(self.slots, kept, strict=True):
                slot.container[slot.key] = t
            for each, states in zip(self.objects, scalers, strict=True):
                each._per_optimizer_states.clear()
                each._per_optimizer_states.update(states)

    def now(self) -> list[Any]:
        """Tensors of the slots at the end of a step.

        Raises:
            UnsupportedError: one is gone.
        """
        import torch

        found = [slot.container[slot.key] for slot in self.slots]
        for slot, t in zip(self.slots, found, strict=True):
            if not isinstance(t, torch.Tensor):
                raise UnsupportedError(
                    f"{self._where}: the step removes a tensor outside of the model, got {slot.path}, expected the "
                    "same ones before and after each step"
                )
        return found


def _of_module(module: Any, name: str) -> Iterator[Slot]:
    seen: set[int] = set()
    for prefix, each in module.named_modules():
        for container in (each._parameters, each._buffers):
            for key, t in container.items():
                if t is not None and id(t) not in seen:
                    seen.add(id(t))
                    yield Slot(".".join(part for part in (name, prefix, key) if part), container, key, t)


def _check_on(scaler: Any, where: str) -> None:
    """Refuse a scaler that has turned itself off for want of its device.

    Raises:
        UnsupportedError: with what is expected.
    """
    import torch

    if not scaler.is_enabled() and scaler._device == "cuda" and not torch.cuda.is_available():
        raise UnsupportedError(
            f"{where}: a gradient scaler is off as there is no CUDA here, got GradScaler('cuda'), expected "
            "torch.amp.GradScaler('cpu'), which computes the same, or none"
        )
