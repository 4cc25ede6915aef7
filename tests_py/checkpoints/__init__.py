"""Checkpoint files and weights."""
