"""Random ops and their seeds."""
