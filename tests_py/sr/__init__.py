"""``popsr.sr`` and stochastic rounding in programs."""
