"""The table of ops: one row for each, with its oracle, inputs, tolerances, gradient and refused arguments."""
