"""Graphs of ``torch.export`` and ATen ops, given and random."""
