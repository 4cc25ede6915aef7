"""The guard around the training loop of torchtitan's Trainer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from popsr._support.lazy import names_only
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr._support.text.suggestions import unknown_attribute
from popsr.errors import ArgumentTypeError, StateError, UnsupportedError
from popsr.guard._watch import Watch

__all__ = ["guard"]

_WHERE = "popsr.guard.torchtitan.guard"
_NEEDED = ("train_step", "step", "model_parts", "optimizers")


@public
@contextlib.contextmanager
def guard(trainer: Any, **options: Any) -> Iterator[None]:
    """Watch a training of torchtitan's Trainer.

    All ranks do so::

        trainer = config.build()
        with guard(trainer, every=100):
            trainer.train()

    Values are compared before the first step, when a checkpoint was loaded, after every ``every`` steps and at the end;
    steps are numbered by ``trainer.step``. Ranks that should agree follow from the placements of DTensors.

    Args:
        trainer: the Trainer, or an object with its ``train_step``, ``step``, ``model_parts`` and ``optimizers``.
        options: those of ``popsr.guard.torch.guard`` after the model and the optimiser. With stages of a pipeline,
            ``group`` is that of the ranks with this rank's stage.
    Raises:
        ArgumentTypeError: this is not such an object.
        StateError: another guard watches it.
        UnsupportedError: this rank has several parts of the model.
    """
    missing = [name for name in _NEEDED if not hasattr(trainer, name)]
    if missing:
        raise ArgumentTypeError(
            f"{_WHERE}: not a trainer, got {shown(trainer)} without {missing[0]}, expected torchtitan's Trainer"
        )
    plain = trainer.train_step
    if getattr(plain, "is_guarded", False):
        raise StateError(f"{_WHERE}: used twice, got a trainer that a guard watches, expected one guard")
    parts = list(trainer.model_parts)
    if len(parts) != 1:
        raise UnsupportedError(f"{_WHERE}: not one model, got {len(parts)} parts on this rank, expected one")
    watch = Watch(_WHERE, options)
    optimizers = getattr(trainer.optimizers, "optimizers", [trainer.optimizers])
    is_begun = False

    def train_step(*args: Any, **kwargs: Any) -> Any:
        nonlocal is_begun
        if not is_begun:
            watch.begin(trainer, parts[0], optimizers, trainer.step - 1)
            is_begun = True
        result = plain(*args, **kwargs)
        watch.reach(trainer, trainer.step)
        return result

    train_step.is_guarded = True  # type: ignore[attr-defined]
    trainer.train_step = train_step
    try:
        yield
        if is_begun:
            watch.end(trainer)
    finally:
        watch.drop()
        del trainer.train_step


if not TYPE_CHECKING:
    __getattr__ = unknown_attribute(__name__, __all__)

__dir__ = names_only(__all__)
