"""Ops, losses, layers and optimisers."""
