"""Ops that address elements by indices."""
