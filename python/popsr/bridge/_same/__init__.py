"""Comparison of a step with one device or a reference: ``_compare`` judges, ``_place`` names the line."""

from popsr.bridge._same._compare import ONE_DEVICE, sameness_of
from popsr.bridge._same._values import HEADER, Place, Sameness, SameValue, cells

__all__ = ["HEADER", "ONE_DEVICE", "Place", "SameValue", "Sameness", "cells", "sameness_of"]
