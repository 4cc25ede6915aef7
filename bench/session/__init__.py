"""Benchmarks of building, compiling and running programs."""
