"""Classes of collectives, by PopART's names."""

from typing import TYPE_CHECKING

from popsr._support.text.suggestions import unknown_attribute
from popsr.compat._objects.op_classes import classes

__all__ = [*classes("collectives")]

globals().update(classes("collectives"))

if not TYPE_CHECKING:
    __getattr__ = unknown_attribute(__name__, __all__)
