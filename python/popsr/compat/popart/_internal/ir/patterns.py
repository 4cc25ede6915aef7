"""PopART's patterns: they are read, and none of them applies, as a program runs as it was written."""

from typing import TYPE_CHECKING

from popsr._support.text.suggestions import unknown_attribute
from popsr.compat._objects.data_flow import Patterns, PatternsLevel

__all__ = ["Patterns", "PatternsLevel"]

if not TYPE_CHECKING:
    __getattr__ = unknown_attribute(__name__, __all__)
