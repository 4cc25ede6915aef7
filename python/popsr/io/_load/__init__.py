"""Loading of checkpoints into programs that differ from the saved one: names, dtypes, groups, shards."""
