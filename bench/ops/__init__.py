"""Benchmarks of ops and of stochastic rounding."""
