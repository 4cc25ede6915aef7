"""Values that are known while a step is read: constants, indices of replicas, positions, and what follows from them."""
