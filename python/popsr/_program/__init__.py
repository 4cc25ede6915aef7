"""The program that Python code writes: how ops, tensors and graphs get into the core."""
