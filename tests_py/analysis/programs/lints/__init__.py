"""A file for each lint: programs where it fires, and near misses."""
