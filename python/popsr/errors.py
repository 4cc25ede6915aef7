"""The errors that popsr raises on purpose.

Every class is an :class:`Error` and also the builtin exception that fits, so ``except ValueError`` works as well as
``except popsr.errors.ShapeError``. Texts read ``op: what is wrong, got X, expected Y``. ``python -m popsr help
ShapeError`` prints what causes an error and what helps, with an example; the last note of an error that leaves popsr
says so. Tracebacks end at the user's line, unless ``POPSR_FULL_TRACEBACK=1`` is in the environment.
"""

from __future__ import annotations

import builtins
from typing import Any

from popsr._support.lazy import names_only
from popsr._support.text.one_line import one_line

__all__ = [
    "ArgumentTypeError",
    "AttributeAccessError",
    "AttributeValueError",
    "CheckpointError",
    "DTypeError",
    "DriftError",
    "Error",
    "FileError",
    "FloatingPointError",
    "GradientError",
    "GraphError",
    "InternalError",
    "InterpreterError",
    "KeyReuseWarning",
    "MissingPackageError",
    "NoMoreItemsError",
    "OutOfMemoryError",
    "OutOfRangeError",
    "OutOfStepError",
    "RankError",
    "ReplicaError",
    "ReplicaWarning",
    "SessionError",
    "ShapeError",
    "StateError",
    "StoppedError",
    "UndefinedValue",
    "UnknownNameError",
    "UnsupportedError",
    "UnsupportedOpsError",
]


class Error(Exception):
    """Base of all errors of popsr. Texts are one line of at most 500 characters; longer ones lose their middle.

    Attributes:
        location: ``file:line`` of the user's program that the error is about, where the traceback does not end there.
    """

    location: str = ""

    def __init__(self, *args: object) -> None:
        """The error of a text."""
        super().__init__(*(one_line(each) if isinstance(each, str) else each for each in args))

    def add_note(self, note: str, /) -> None:
        """Add a line below the text in tracebacks, which is bounded as the text is."""
        super().add_note(one_line(note))

    @property
    def help(self) -> str:
        """The command that prints what causes such an error, and what helps."""
        name = next(each.__name__ for each in type(self).__mro__ if each.__module__ == __name__)
        return f"python -m popsr help {name}"


class ShapeError(Error, ValueError):
    """A shape does not fit."""


class DTypeError(Error, TypeError):
    """An element type does not fit."""


class ArgumentTypeError(Error, TypeError):
    """An argument is an object of the wrong Python type."""


class AttributeValueError(Error, ValueError):
    """The value of a parameter is not one of the accepted ones."""


class GraphError(Error, ValueError):
    """A program is put together wrongly: a tensor of another graph, an ambiguous order, a missing gradient."""


class GradientError(Error, AssertionError):
    """A gradient is not the derivative of the loss; ``check`` is the ``popsr.testing.GradientCheck`` that says so."""

    check: Any = None


class OutOfStepError(Error, AssertionError):
    """Replicas need not stay in step, or train otherwise than one device; ``proof`` says which values and why."""

    proof: Any = None


class DriftError(Error, AssertionError):
    """Ranks or devices that should hold a value with equal bits do not, as ``popsr.guard`` found.

    Attributes:
        drift: the ``popsr.guard.Finding``: step, name, ranks, first element, both bit patterns, how many elements.
    """

    drift: Any = None


class RankError(Error, RuntimeError):
    """Ranks make other calls than each other, or none: of a session that MPI shares, or of a guard of training."""


class ReplicaError(Error, ValueError):
    """Replicas, groupings or partitions do not fit together."""


class SessionError(Error, ValueError):
    """A session is used in a state that does not allow the call, or with data for other streams."""


class StateError(Error, RuntimeError):
    """A call needs another state: no graph is entered, or an Ir can no longer be changed."""


class StoppedError(Error, RuntimeError):
    """``Session.stop`` ended a run between two of its instructions."""


class FloatingPointError(Error, builtins.FloatingPointError):
    """An op made an infinity or NaN of finite operands, with ``ir.options.enable_floating_point_checks``."""


class AttributeAccessError(Error, AttributeError):
    """An object or module has no such attribute, or not one that can be read or set."""


class UnknownNameError(Error, KeyError):
    """No op or tensor has that name."""

    def __str__(self) -> str:
        return Exception.__str__(self)


class OutOfMemoryError(Error, MemoryError):
    """Data would need more memory than the machine has."""


class NoMoreItemsError(Error, StopIteration):
    """Initial values for variables have run out."""


class OutOfRangeError(Error, IndexError):
    """An index is outside what it counts."""


class UnsupportedError(Error, NotImplementedError):
    """A combination that is known and not implemented."""


class UnsupportedOpsError(UnsupportedError):
    """A program of another framework has ops without a counterpart.

    Attributes:
        gaps: all of them, each a ``popsr.bridge.Gap`` with the op, the user's line and how often it occurs.
    """

    gaps: tuple[Any, ...] = ()


class InternalError(Error, RuntimeError):
    """A defect of popsr itself; please report it."""


class CheckpointError(Error, ValueError):
    """A checkpoint file is damaged, contradicts itself, exceeds a limit, or is not a checkpoint."""


class FileError(Error, OSError):
    """A file cannot be read or written; ``errno`` says why the system refused."""

    def __str__(self) -> str:
        return Exception.__str__(self)


class InterpreterError(Error, ImportError):
    """popsr is imported in an interpreter that it cannot run in."""


class MissingPackageError(Error, ImportError):
    """A call needs an optional package that is not installed."""


class _BoundedWarning(UserWarning):
    """Not an :class:`Error`, as it stops nothing; its text is bounded as an error's is."""

    def __init__(self, *args: object) -> None:
        """The warning of a text."""
        super().__init__(*(one_line(each) if isinstance(each, str) else each for each in args))

    def add_note(self, note: str, /) -> None:
        """As of :class:`Error`."""
        super().add_note(one_line(note))


class ReplicaWarning(_BoundedWarning):
    """Replicas that are declared equal need not stay so; see the lints of ``PartitionAnalysis.warnings``.

    It is given at the line of the op that is to blame, by Python's ``warnings``: filters silence it or make it an
    error.
    """


class KeyReuseWarning(_BoundedWarning):
    """Two calls of ``popsr.sr`` draw the same random numbers; see ``popsr.sr.watch_keys``."""


class UndefinedValue(Error):
    """A property has no value yet."""


__dir__ = names_only(__all__)
