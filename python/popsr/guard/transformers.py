"""The guard as a callback of the Trainer of Hugging Face's transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    from transformers import TrainerCallback
except ImportError as error:
    from popsr._support.host.frameworks import not_installed

    raise not_installed("popsr.guard.transformers", "transformers") from error

from popsr._support.lazy import names_only
from popsr._support.text.entry_points import public
from popsr._support.text.suggestions import unknown_attribute
from popsr.guard._watch import Watch

__all__ = ["GuardCallback"]


@public
class GuardCallback(TrainerCallback):
    """Watch each training of a Trainer: ``Trainer(..., callbacks=[GuardCallback(every=100)])`` on all ranks.

    Values are compared before the first step, after every ``every`` steps and at the end; steps are numbered by the
    Trainer's ``global_step``.

    Args:
        options: those of ``popsr.guard.torch.guard`` after the model and the optimiser.
    """

    def __init__(self, **options: Any) -> None:
        """Checks the names of the options."""
        self._watch = Watch("GuardCallback", options)

    def on_train_begin(self, _: Any, state: Any, __: Any, *, model: Any, optimizer: Any, **___: Any) -> None:
        """Compare, and watch the optimiser."""
        self._watch.begin(state, model, [optimizer], state.global_step)

    def on_step_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        """Count a step that the optimiser skipped."""
        self._watch.reach(state, state.global_step)

    def on_train_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        """Compare what came after the last check."""
        self._watch.end(state)


if not TYPE_CHECKING:
    __getattr__ = unknown_attribute(__name__, __all__)

__dir__ = names_only(__all__)
