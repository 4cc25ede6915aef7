"""The repository: layers, sizes, README, docs, examples."""
