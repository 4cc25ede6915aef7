"""Copies of what a training step reads and writes, and putting them back in place."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from typing import Any

import numpy as np

from popsr._support.host.frameworks import framework
from popsr._support.text.one_line import one_line
from popsr._support.text.shown import shown
from popsr.errors import UnsupportedError
from popsr.guard.torch._hash import WHERE

__all__ = ["Generators", "Kept", "Settings", "copied"]


class Kept:
    """Parameters, buffers, states and settings of optimisers, and states of other objects, as they are now."""

    def __init__(
        self, model: Any, optimizers: tuple[Any, ...], others: tuple[Any, ...], *, gradients: bool
    ) -> None:
        """Copies them, each on its device; of gradients that are not kept there are none when it is put back.

        Raises:
            UnsupportedError: an object cannot be copied.
        """
        self._model, self._optimizers, self._others = model, optimizers, others
        self._values = {name: copied(name, value.detach()) for name, value in _values(model).items()}
        self._states = [
            {key: copied("the state of an optimizer", value) for key, value in each.state.items()}
            for each in optimizers
        ]
        self._settings = Settings(optimizers)
        self._extra = [copied(type(each).__name__, each.state_dict()) for each in others]
        self._gradients = {
            each: (each.grad, copied("a gradient", each.grad))
            for each in model.parameters()
            if gradients and each.grad is not None
        }

    def put(self) -> None:
        """Make all as it was, in the same tensors where they still fit.

        Raises:
            UnsupportedError: there are other parameters, buffers or groups now.
        """
        torch = framework(WHERE, "torch")
        now = _values(self._model)
        for name in sorted(now.keys() ^ self._values.keys()):
            raise _changed(name)
        with torch.no_grad():
            for name, value in self._values.items():
                if not _fits(now[name], value):
                    raise _changed(name)
                _local(now[name]).copy_(_local(value))
            for optimizer, states in zip(self._optimizers, self._states, strict=True):
                _put(optimizer.state, states)
            self._settings.put(self._optimizers)
            for parameter in self._model.parameters():
                gradient, value = self._gradients.get(parameter, (None, None))
                if gradient is not None:
                    _local(gradient).copy_(_local(value))
                parameter.grad = gradient
        for other, state in zip(self._others, self._extra, strict=True):
            other.load_state_dict(copied(type(other).__name__, state))


class Settings:
    """Settings of all groups of optimisers, as learning rates."""

    def __init__(self, optimizers: tuple[Any, ...]) -> None:
        """Copies them."""
        self._groups = [
            [
                {key: copied(key, value) for key, value in group.items() if key != "params"}
                for group in each.param_groups
            ]
            for each in optimizers
        ]

    def put(self, optimizers: tuple[Any, ...]) -> None:
        """Make them as they were.

        Raises:
            UnsupportedError: there are other groups now.
        """
        torch = framework(WHERE, "torch")
        for optimizer, groups in zip(optimizers, self._groups, strict=True):
            if len(optimizer.param_groups) != len(groups):
                raise _changed("a group of parameters")
            with torch.no_grad():
                for group, kept in zip(optimizer.param_groups, groups, strict=True):
                    _put(group, kept, ("params",))


class Generators:
    """States of the generators of Python, NumPy and PyTorch that a program has without making one."""

    def __init__(self) -> None:
        """Reads them."""
        torch = framework(WHERE, "torch")
        self._python, self._numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - the one that programs have
        self._cpu = torch.get_rng_state()
        has_cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
        self._cuda = torch.cuda.get_rng_state() if has_cuda else None

    def put(self) -> None:
        """Make them as they were."""
        torch = framework(WHERE, "torch")
        random.setstate(self._python)
        np.random.set_state(self._numpy)  # noqa: NPY002
        torch.set_rng_state(self._cpu)
        if self._cuda is not None:
            torch.cuda.set_rng_state(self._cuda)


def copied(what: str, value: Any) -> Any:
    """Containers with copies of all tensors, and of other objects.

    Raises:
        UnsupportedError: an object cannot be copied.
    """
    torch = framework(WHERE, "torch")

    def leaf(each: Any) -> Any:
        if isinstance(each, torch.Tensor):
            return each.detach().clone().requires_grad_(each.requires_grad)
        try:
            return copy.deepcopy(each)
        except Exception as error:  # of the object's own
            reason = one_line(str(error), 120)
            raise UnsupportedError(
                f"{WHERE}: {what} cannot be copied, got {shown(each)}: {reason}, expected one that copy.deepcopy takes"
            ) from error

    return torch.utils._pytree.tree_map(leaf, value)


def _values(model: Any) -> dict[str, Any]:
    return dict(model.named_parameters()) | dict(model.named_buffers())


def _local(value: Any) -> Any:
    local = value.detach()
    return local.to_local() if hasattr(local, "to_local") else local


def _fits(a: Any, b: Any) -> bool:
    a, b = _local(a), _local(b)
    return bool(a.shape == b.shape and a.dtype == b.dtype and a.device == b.device)


def _put(place: Any, kept: Mapping[Any, Any], untouched: tuple[str, ...] = ()) -> None:
    """Make a mapping what it was, in its own tensors and mappings where these fit."""
    torch = framework(WHERE, "torch")
    for key in [each for each in place if each not in kept and each not in untouched]:
        del place[key]
    for key, value in kept.items():
        now = place.get(key)
        if isinstance(now, torch.Tensor) and isinstance(value, torch.Tensor) and _fits(now, value):
            _local(now).copy_(_local(value))
        elif isinstance(now, dict) and isinstance(value, dict):
            _put(now, value)
        else:
            place[key] = copied(str(key), value)


def _changed(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"{WHERE}: the model or an optimizer changed since it was kept, got another {name}, expected the same"
    )
