"""Tracing of steps: what is recorded, followed from step to step, or refused."""
