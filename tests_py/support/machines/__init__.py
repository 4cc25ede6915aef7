"""NumPy models of a state that changes step by step, compared with popsr after every step."""
