"""Right steps, and lines that are wrong alike on all replicas: verdicts against the framework's own runs."""
