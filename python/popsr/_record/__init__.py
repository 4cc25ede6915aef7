"""Recordings of runs, their comparison, and traces."""
