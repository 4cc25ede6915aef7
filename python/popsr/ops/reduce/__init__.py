"""Reductions, scans and order along axes."""
