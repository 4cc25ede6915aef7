"""Recordings of runs, and the first difference between two."""
