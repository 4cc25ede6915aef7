"""Random right steps of JAX and their mutants, compared with one device."""
