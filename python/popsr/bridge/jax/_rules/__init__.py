"""Rules of JAX: how each primitive of a jaxpr becomes ops, in the file of its kind; ``table`` registers them."""
