"""Digests of what programs compute: no change may alter a bit."""
