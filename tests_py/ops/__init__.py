"""Ops of the registry: values, gradients, effects, refused arguments."""
