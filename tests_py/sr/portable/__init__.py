"""Casts and sums in array operations of NumPy, torch and JAX, beside the core."""
