"""Rules of JAX: how each primitive of a jaxpr becomes ops."""
