"""Wrappers of modules, such as ``DistributedDataParallel`` and ``fully_shard``, as they are traced."""
