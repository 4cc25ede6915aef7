"""Pipelines of PyTorch, whose ranks run different programs."""
