"""Training steps with a bug planted, and the same steps without it."""
