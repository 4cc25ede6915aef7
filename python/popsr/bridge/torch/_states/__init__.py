"""Tensors and Python state of a step, and the second trace, from what the first left behind."""
