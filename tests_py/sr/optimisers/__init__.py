"""Optimisers of ``popsr.sr.torch``: compiled, in parts, on other devices, with what torch saved."""
