"""Programs whose tensor two replicas hold equal or not, each with the expected explanation."""
