"""Ops that run other graphs, or exchange values with the host and with remote memory."""
