"""A step beside itself on a mesh of ones, or beside a reference: whether it trains as one device would."""

from popsr.bridge._same._compare import ONE_DEVICE, sameness_of
from popsr.bridge._same._values import HEADER, Place, Sameness, SameValue, cells

__all__ = ["HEADER", "ONE_DEVICE", "Place", "SameValue", "Sameness", "cells", "sameness_of"]
