"""Values that no exact number is known of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Unknown", "first_unknown"]


@dataclass(frozen=True, eq=False, slots=True)
class Unknown:
    """An array of which nothing is known, as an op before it has no exact meaning.

    Attributes:
        reason: the op, and its line.
        size: number of elements of the array that it began as.
    """

    reason: str
    size: int = 0

    def __getitem__(self, _: Any) -> Unknown:
        """Parts of it are unknown, too."""
        return self

    def reshape(self, _: Any) -> Unknown:
        """Unknown in any shape."""
        return self


def first_unknown(*values: Any) -> Unknown | None:
    """The first of some values that is unknown."""
    return next((each for each in values if isinstance(each, Unknown)), None)
