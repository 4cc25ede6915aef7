"""Stochastic rounding inside torch: custom ops and optimisers."""
