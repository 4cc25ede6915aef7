"""Proofs of steps: made, printed, saved and compared, from Python and from a shell."""
