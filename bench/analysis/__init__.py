"""Benchmarks of the analysis, of proofs and of audits; and their generator in C++."""
