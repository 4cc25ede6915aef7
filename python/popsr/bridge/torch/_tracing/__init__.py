"""Tracing of a step as one rank: what torch is made to call, and what is recorded of it."""
