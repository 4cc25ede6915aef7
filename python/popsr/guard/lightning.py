"""The guard as a callback of Lightning's Trainer."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

try:
    _found = map(
        importlib.util.find_spec, ("lightning", "pytorch_lightning")
    )  # the second is the Trainer alone
    _is_alone = [each is not None for each in _found] == [False, True]
    Callback: Any = importlib.import_module(
        "pytorch_lightning" if _is_alone else "lightning.pytorch"
    ).Callback
except ImportError as error:
    from popsr._support.host.frameworks import not_installed

    raise not_installed("popsr.guard.lightning", "lightning") from error

from popsr._support.lazy import names_only
from popsr._support.text.entry_points import public
from popsr._support.text.suggestions import unknown_attribute
from popsr.guard._watch import Watch

__all__ = ["GuardCallback"]


@public
class GuardCallback(Callback):
    """Watch each fit of a Trainer: ``Trainer(strategy="ddp", callbacks=[GuardCallback(every=100)])`` on all ranks.

    Values are compared before the first step, after every ``every`` steps and at the end. Steps are numbered by the
    Trainer's ``global_step``; with several optimisers, steps of the last one are counted from 0 in each fit.

    Args:
        options: those of ``popsr.guard.torch.guard`` after the model and the optimiser.
    """

    def __init__(self, **options: Any) -> None:
        """Checks the names of the options."""
        super().__init__()
        self._watch = Watch("GuardCallback", options)

    def on_train_start(self, trainer: Any, *_: Any) -> None:
        """Compare, and watch the optimiser."""
        self._watch.begin(trainer, trainer.strategy.model, trainer.optimizers, _step(trainer))

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """Count a step that the optimiser skipped."""
        self._watch.reach(trainer, _step(trainer))

    def on_train_end(self, trainer: Any, *_: Any) -> None:
        """Compare what came after the last check."""
        self._watch.end(trainer)

    def on_exception(self, *_: Any) -> None:
        """Watch no more."""
        self._watch.drop()


def _step(trainer: Any) -> int:
    """The Trainer's count, which is of the steps of all optimisers."""
    return int(trainer.global_step) if len(trainer.optimizers) == 1 else 0


if not TYPE_CHECKING:
    __getattr__ = unknown_attribute(__name__, __all__)

__dir__ = names_only(__all__)
