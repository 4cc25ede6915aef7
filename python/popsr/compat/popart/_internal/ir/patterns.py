"""PopART's patterns: they are read, and none of them applies, as a program runs as it was written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from popsr._args import read_a, read_bool, read_text
from popsr._choices import Choices
from popsr._shown import shown
from popsr._suggestions import unknown_attribute
from popsr.errors import ArgumentTypeError

__all__ = ["Patterns", "PatternsLevel"]


class PatternsLevel(Choices):
    """How many patterns are on."""

    NoPatterns = 0
    Minimal = 1
    Default = 2
    All = 3


class Patterns:
    """A level, and patterns by name that are on or off beside it.

    Args:
        level: a level, or names of patterns that are on.
    Raises:
        ArgumentTypeError: it is neither.
    """

    def __init__(self, level: Any = PatternsLevel.Default) -> None:
        """Patterns of a level."""
        self._enabled: dict[str, bool] = {}
        if isinstance(level, (list, tuple)):
            self._enabled = {read_text("Patterns: pattern", name): True for name in level}
            level = PatternsLevel.NoPatterns
        self._level: PatternsLevel = read_a("Patterns: level", level, PatternsLevel)

    def enablePattern(self, name: str, is_enabled: bool) -> Patterns:  # noqa: N802 - PopART's name
        """Switch one pattern; returns the patterns.

        Raises:
            ArgumentTypeError: a name that is not a str, or a value that is not a bool.
        """
        self._enabled[read_text("enablePattern: name", name)] = read_bool("enablePattern", is_enabled)
        return self

    def isPatternEnabled(self, name: str) -> bool:  # noqa: N802 - PopART's name
        """True if the pattern was switched on, or nothing was said of it and the level is not NoPatterns."""
        is_on = self._level is not PatternsLevel.NoPatterns
        return self._enabled.get(read_text("isPatternEnabled: name", name), is_on)

    def enableRuntimeAsserts(self, is_enabled: bool) -> Patterns:  # noqa: N802 - PopART's name
        """Read a flag; returns the patterns."""
        read_bool("enableRuntimeAsserts", is_enabled)
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        """Fields such as ``InPlace`` switch patterns.

        Raises:
            ArgumentTypeError: a value that is not a bool.
        """
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        elif not isinstance(value, bool):
            raise ArgumentTypeError(f"Patterns: {name} is not a bool, got {shown(value)}, expected a bool")
        else:
            self._enabled[name] = value

    def __repr__(self) -> str:
        return f"Patterns({self._level.name}, {self._enabled})"


def accepted() -> tuple[type, ...]:
    """Classes of patterns that ``setPatterns`` reads."""
    from popsr.compat import popart

    return tuple(dict.fromkeys((Patterns, getattr(popart, "Patterns", Patterns))))


if not TYPE_CHECKING:
    __getattr__ = unknown_attribute(__name__, __all__)
