"""Convolutions, pooling, normalisation and dropout."""
