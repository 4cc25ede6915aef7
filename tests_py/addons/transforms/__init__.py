"""Gradients, pipelines, batches in pieces, loops over graphs."""
