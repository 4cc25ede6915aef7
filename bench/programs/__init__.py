"""Programs that benchmarks run."""
