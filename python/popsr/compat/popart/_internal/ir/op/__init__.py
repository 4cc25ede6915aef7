"""Classes of ops: one for each op of popsr, by PopART's names."""

from typing import TYPE_CHECKING

from popsr._support.text.suggestions import unknown_attribute
from popsr.compat._objects.op_classes import classes
from popsr.compat.popart._internal.ir.op import collectives, dynamic, exchange

__all__ = [*classes(""), "collectives", "dynamic", "exchange"]

globals().update(classes(""))

if not TYPE_CHECKING:
    __getattr__ = unknown_attribute(__name__, __all__)
