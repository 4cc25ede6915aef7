"""Wrappers, hooks and compiled modules around models of PyTorch."""
