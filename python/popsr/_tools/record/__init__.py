"""Recordings of runs and their comparison."""
