"""Classes of slices and updates at offsets that are known when a program runs, by PopART's names."""

from typing import TYPE_CHECKING

from popsr._support.text.suggestions import unknown_attribute
from popsr.compat._objects.op_classes import classes

__all__ = [*classes("dynamic")]

globals().update(classes("dynamic"))

if not TYPE_CHECKING:
    __getattr__ = unknown_attribute(__name__, __all__)
