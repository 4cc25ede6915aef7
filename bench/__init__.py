"""Benchmarks; bench/README.md has their results."""
