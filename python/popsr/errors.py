"""The errors that popsr raises on purpose.

Every class is an :class:`Error` and also the builtin exception that fits, so ``except ValueError`` works as well as
``except popsr.errors.ShapeError``. Texts read ``op: what is wrong, got X, expected Y``.
"""

from __future__ import annotations

__all__ = [
    "ArgumentTypeError",
    "AttributeValueError",
    "CheckpointError",
    "DTypeError",
    "Error",
    "FileError",
    "GraphError",
    "InternalError",
    "MissingPackageError",
    "OutOfRangeError",
    "ReplicaError",
    "ReplicaWarning",
    "SessionError",
    "ShapeError",
    "StateError",
    "UndefinedValue",
    "UnknownNameError",
    "UnsupportedError",
]


class Error(Exception):
    """Base of all errors of popsr."""


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


class ReplicaError(Error, ValueError):
    """Replicas, groupings or partitions do not fit together."""


class SessionError(Error, ValueError):
    """A session is used in a state that does not allow the call, or with data for other streams."""


class StateError(Error, RuntimeError):
    """A call needs another state: no graph is entered, or an Ir can no longer be changed."""


class UnknownNameError(Error, KeyError):
    """No op or tensor has that name."""

    def __str__(self) -> str:
        return Exception.__str__(self)


class OutOfRangeError(Error, IndexError):
    """An index is outside what it counts."""


class UnsupportedError(Error, NotImplementedError):
    """A combination that is known and not implemented."""


class InternalError(Error, RuntimeError):
    """A defect of popsr itself; please report it."""


class CheckpointError(Error, ValueError):
    """A checkpoint file is damaged, contradicts itself, or is none."""


class FileError(Error, OSError):
    """A file cannot be read or written; ``errno`` says why the system refused."""

    def __str__(self) -> str:
        return Exception.__str__(self)


class MissingPackageError(Error, ImportError):
    """A call needs an optional package that is not installed."""


class ReplicaWarning(UserWarning):
    """Replicas that are declared equal need not stay so; see the lints of ``PartitionAnalysis.warnings``.

    It is given at the line of the op that is to blame, by Python's ``warnings``: filters silence it or make it an
    error. It is no :class:`Error`, as it stops nothing.
    """


class UndefinedValue(Error):
    """A property has no value yet."""
