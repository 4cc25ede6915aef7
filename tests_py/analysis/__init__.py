"""Facts about replicas, explanations, lints, mode "popart"."""
