"""Steps that the compiler of JAX shards."""
