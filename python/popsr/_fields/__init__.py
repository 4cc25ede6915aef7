"""Exact real numbers, as residues in a chain of prime fields: of what ``popsr.prove`` compares steps with."""

from popsr._fields._chain import TOP
from popsr._fields._exps import counted_exps
from popsr._fields.numbers import Array, Numbers, constant, same, select

__all__ = ["TOP", "Array", "Numbers", "constant", "counted_exps", "same", "select"]
