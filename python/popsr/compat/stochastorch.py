"""StochasTorch's name."""

from popsr.stochastic_adder import StochasticAdder

__all__ = ["StochasticAdder"]
