"""Helpers that several rooms share."""
