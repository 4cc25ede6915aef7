"""Classes of ops that move data between host, remote buffers and devices, by PopART's names."""

from typing import TYPE_CHECKING

from popsr._support.text.suggestions import unknown_attribute
from popsr.compat._objects.op_classes import classes

__all__ = [*classes("exchange")]

globals().update(classes("exchange"))

if not TYPE_CHECKING:
    __getattr__ = unknown_attribute(__name__, __all__)
