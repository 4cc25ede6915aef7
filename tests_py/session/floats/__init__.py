"""The floating-point environment of runs, and checks of their results."""
