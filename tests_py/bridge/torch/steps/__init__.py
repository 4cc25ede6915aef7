"""Random steps of PyTorch: drawn, run on real ranks, shrunk where they differ."""
