"""Tests of the documentation: pages, docstrings, examples, words."""
