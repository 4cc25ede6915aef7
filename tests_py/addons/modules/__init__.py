"""Modules, factories of variables, trees of named tensors."""
