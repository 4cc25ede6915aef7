"""Element-wise ops: arithmetic, functions, comparisons, casts."""
