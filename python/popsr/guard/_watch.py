"""A guard for as long as a framework trains: what the callbacks of frameworks have in common."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from popsr._support.host.arguments import require_known
from popsr.errors import StateError, UnsupportedError
from popsr.guard.torch import Guard, guard

__all__ = ["Watch"]

_OPTIONS = tuple(inspect.signature(guard).parameters)[2:]  # after the model and the optimiser


class Watch:
    """The guard of one training at a time.

    A training is an object that stays the same from its beginning to its end, so that one that still goes on is told
    from one that ended by an error, which not every framework reports.
    """

    def __init__(self, where: str, options: Mapping[str, Any]) -> None:
        """Takes the options of ``guard``.

        Raises:
            UnknownNameError: ``guard`` has no such option.
            UnsupportedError: steps are to be replayed, which only the trainer can make.
        """
        require_known(f"{where}: no such option", options, _OPTIONS)
        if options.get("bisect", False) is not False:
            raise UnsupportedError(
                f"{where}: steps of a trainer cannot be made once more, got bisect, expected it left out"
            )
        self._where, self._options = where, options
        self._guard: Guard | None = None
        self._training: object = None

    def begin(self, training: object, model: Any, optimizers: Any, step: int) -> None:
        """Compare all values before a training, whose step so far this is.

        Raises:
            StateError: this training began before.
        """
        if self._guard is not None and self._training is training:
            raise StateError(
                f"{self._where}: used twice, got a training that it watches, expected it once in a trainer"
            )
        self.drop()
        made = guard(model, list(optimizers), **self._options)
        made.steps = step
        made.__enter__()
        self._guard, self._training = made, training

    def reach(self, training: object, step: int) -> None:
        """Count steps that the optimiser skipped, as with gradients that are not finite.

        Raises:
            StateError: this training did not begin.
        """
        self._open(training)._reach(step)

    def end(self, training: object) -> None:
        """Compare what came after the last check.

        Raises:
            StateError: this training did not begin.
        """
        made = self._open(training)
        self._guard = self._training = None
        made.__exit__(None, None, None)

    def drop(self) -> None:
        """Watch no more after an error, and compare nothing: other ranks may not have one."""
        if self._guard is not None:
            made, self._guard, self._training = self._guard, None, None
            made.__exit__(RuntimeError, None, None)

    def _open(self, training: object) -> Guard:
        if self._guard is None or self._training is not training:
            of = "no training" if self._guard is None else "another training"
            raise StateError(
                f"{self._where}: a training goes on that it did not see begin, got {of}, expected it in one trainer, "
                "from before the training"
            )
        return self._guard
