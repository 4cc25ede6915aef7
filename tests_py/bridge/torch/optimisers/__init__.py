"""Optimisers of PyTorch in traced steps."""
