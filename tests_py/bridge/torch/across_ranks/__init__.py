"""Collectives, branches and operands of a step across its ranks."""
