"""Advice followed: random right steps, one line of which is made wrong, and what the proof advises of them."""
