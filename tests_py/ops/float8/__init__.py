"""float8 on the host and in programs."""
