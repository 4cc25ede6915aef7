"""Ops of neural networks: convolutions, pools, norms, losses, attention."""
