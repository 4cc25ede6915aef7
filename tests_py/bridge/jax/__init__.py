"""Steps of JAX: primitives, whole steps, verdicts, pages of the documentation."""
