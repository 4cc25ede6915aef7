"""Steps of PyTorch: ops, whole steps, wrappers, ranks, verdicts."""
