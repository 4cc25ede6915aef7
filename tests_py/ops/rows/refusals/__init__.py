"""Calls of ops that must be refused, by family; each op's row has its own."""
