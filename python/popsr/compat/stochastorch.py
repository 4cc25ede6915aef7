"""StochasTorch's name."""

from popsr.sr._adder import StochasticAdder

__all__ = ["StochasticAdder"]
