"""Casts to block formats: elements of few bits, with a scale for each block."""
