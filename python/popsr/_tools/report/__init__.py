"""The report of a program and its runs: one HTML file, and the same as text."""
