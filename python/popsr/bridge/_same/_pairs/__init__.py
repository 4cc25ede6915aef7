"""Values of a step and of its reference that belong together."""
