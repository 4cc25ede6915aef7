"""Utilities that the models share: configuration, the Ir and its options, optimisers, pretrained weights."""
