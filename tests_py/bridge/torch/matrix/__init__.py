"""Models × parallelism × optimisers: what is read of each, held against real ranks."""
