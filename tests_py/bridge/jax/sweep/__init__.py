"""Random steps of all surfaces of JAX, judged by the bits on each device."""
