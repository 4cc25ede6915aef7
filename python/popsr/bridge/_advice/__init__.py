"""Advice about steps that are not proved right: changes that were tried on the traced program."""

from popsr.bridge._advice._edited import redeclared
from popsr.bridge._advice._tried import Advice, Variant, advice_for, is_whole_loss

__all__ = ["Advice", "Variant", "advice_for", "is_whole_loss", "redeclared"]
