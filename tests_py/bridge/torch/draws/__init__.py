"""Random numbers of steps of PyTorch, and their generators."""
