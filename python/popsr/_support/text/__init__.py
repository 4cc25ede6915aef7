"""Texts of errors and reports: one line, bounded, with the nearest known names."""
