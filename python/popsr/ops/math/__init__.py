"""Element-wise ops: arithmetic, functions, activations, comparisons, casts."""
