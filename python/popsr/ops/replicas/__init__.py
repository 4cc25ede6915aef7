"""Ops between replicas; ``popsr.ops.collectives`` exports what users call."""
