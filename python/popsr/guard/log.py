"""Functions for ``guard(..., log=...)`` that write what a check found to where a job writes its metrics.

Each takes a step and its :class:`popsr.guard.Checked`, as a function of your own may. A check gives one metric,
``guard/differ``: the number of values whose hashes differ that should agree.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from popsr._support.host.arguments import read_call
from popsr._support.lazy import names_only
from popsr._support.text.entry_points import public
from popsr._support.text.suggestions import unknown_attribute
from popsr.guard._finding import Checked

__all__ = ["to_logging", "to_tensorboard", "to_wandb"]

_DIFFER = "guard/differ"
_STEP = "guard/step"

Log = Callable[[int, Checked], None]


@public
def to_logging(logger: Any = None) -> Log:
    """Write to a logger of ``logging``: INFO where hashes agree, ERROR with the first difference.

    Args:
        logger: with ``info`` and ``error``. Default: ``logging.getLogger("popsr.guard")``.
    """
    logger = logging.getLogger("popsr.guard") if logger is None else logger
    info, failure = (
        read_call(f"to_logging: {name} of logger", getattr(logger, name, None)) for name in ("info", "error")
    )

    def log(_: int, checked: Checked) -> None:
        (info if checked else failure)("%s", checked)

    return log


@public
def to_tensorboard(writer: Any) -> Log:
    """Write the metric to TensorBoard, and a difference as text.

    Args:
        writer: a ``SummaryWriter`` of ``torch.utils.tensorboard`` or tensorboardX, best of one rank.
    """
    scalar, text, flush = (
        read_call(f"to_tensorboard: {name} of writer", getattr(writer, name, None))
        for name in ("add_scalar", "add_text", "flush")
    )

    def log(step: int, checked: Checked) -> None:
        scalar(_DIFFER, _count(checked), step)
        if not checked:
            text("guard/finding", str(checked), step)
            flush()  # the job may end by the error that follows

    return log


@public
def to_wandb(run: Any) -> Log:
    """Write the metric to a run of Weights & Biases, over ``guard/step``, and a difference as an alert.

    Rows of the job's own ``run.log`` keep their steps: the metric joins the row that is being written.

    Args:
        run: as of ``wandb.init``, best of one rank.
    """
    define, write, alert = (
        read_call(f"to_wandb: {name} of run", getattr(run, name, None))
        for name in ("define_metric", "log", "alert")
    )
    define(_STEP, hidden=True)
    define(_DIFFER, step_metric=_STEP)

    def log(step: int, checked: Checked) -> None:
        write({_DIFFER: _count(checked), _STEP: step}, commit=False)
        if not checked:
            alert(title="popsr.guard", text=str(checked))

    return log


def _count(checked: Checked) -> int:
    return 0 if checked.finding is None else len(checked.finding.names)


if not TYPE_CHECKING:
    __getattr__ = unknown_attribute(__name__, __all__)

__dir__ = names_only(__all__)
