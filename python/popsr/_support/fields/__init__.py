"""Exact real numbers, as residues in a chain of prime fields: of what ``popsr.prove`` compares steps with."""

from popsr._support.fields._chain import TOP
from popsr._support.fields.numbers import EXPS_BEYOND, Array, Numbers, constant, same, select

__all__ = ["EXPS_BEYOND", "TOP", "Array", "Numbers", "constant", "same", "select"]
