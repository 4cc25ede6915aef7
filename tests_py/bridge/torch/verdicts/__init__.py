"""Verdicts of proofs of steps that stay in step: ok or suspicious."""
