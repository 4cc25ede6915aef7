"""Steps as libraries of JAX write them: Equinox, Flax, Haiku, optax."""
