"""Printing while a program runs, as far as the environment asks for it.

``MODEL_LOG_LEVEL`` is read when this module is imported: TRACE, DEBUG, INFO (default) or WARN. What would be printed
at a lower level than that adds no op.
"""

from __future__ import annotations

import os
from typing import Any, Literal, get_args

import numpy as np

from popsr import ops
from popsr._program.building.transaction import transactional
from popsr._program.tensor import Tensor, constant
from popsr._support.host.arguments import is_a, read_choice
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError

__all__ = ["LEVELS_TYPE", "print_tensor", "print_text"]

LEVELS_TYPE = Literal["TRACE", "DEBUG", "INFO", "WARN"]
"""Levels in ascending order."""

_LEVELS: tuple[str, ...] = get_args(LEVELS_TYPE)
_THRESHOLD: str = read_choice(
    "debugging", "MODEL_LOG_LEVEL", os.environ.get("MODEL_LOG_LEVEL", "INFO"), _LEVELS
)


def _is_printed(where: str, level: str) -> bool:
    return _LEVELS.index(read_choice(where, "level", level, _LEVELS)) >= _LEVELS.index(_THRESHOLD)


@public
def print_tensor(t: Tensor, *args: Any, level: LEVELS_TYPE = "DEBUG", **kwargs: Any) -> Tensor:
    """``ops.print_tensor`` if ``MODEL_LOG_LEVEL`` is ``level`` or lower.

    Args:
        t: the tensor, any shape and dtype.
        *args: further arguments of ``ops.print_tensor``.
        level: "TRACE", "DEBUG", "INFO" or "WARN".
        **kwargs: likewise.
    Returns:
        What ``ops.print_tensor`` returns, or ``t`` itself.
    Raises:
        AttributeValueError: unknown level.
        ArgumentTypeError: ``t`` is not a Tensor; otherwise as for ``ops.print_tensor``, when it is printed.
    """
    if not is_a(t, Tensor):
        raise ArgumentTypeError(f"print_tensor: t is not a Tensor, got {shown(t)}")
    return ops.print_tensor(t, *args, **kwargs) if _is_printed("print_tensor", level) else t


@public
@transactional
def print_text(text: str, num: Tensor | None = None, level: LEVELS_TYPE = "DEBUG") -> None:
    """Print a text, and a tensor after it, each time that this point runs, as ``ops.print_tensor`` does.

    The text is the title of a block: it is followed by a colon, with several replicas by ``_replica_<number>`` before
    it, and by an empty line. Without ``num`` there is nothing behind the colon.

    Args:
        text: the text.
        num: a tensor, any shape and dtype.
        level: as for ``print_tensor``.
    Raises:
        AttributeValueError: unknown level.
        ArgumentTypeError: ``text`` is not a str, or ``num`` not a Tensor.
    """
    if not is_a(text, str):
        raise ArgumentTypeError(f"print_text: text is not a str, got {shown(text)}")
    if num is not None and not is_a(num, Tensor):
        raise ArgumentTypeError(f"print_text: num is not a Tensor, got {shown(num)}")
    if not _is_printed("print_text", level):
        return
    if num is not None:
        ops.print_tensor(num, title=text)
        return
    nothing = constant(np.zeros(0, np.float32), name="nothing")
    ops.print_tensor(nothing, title=text, open_bracket=" ", close_bracket=" ")
