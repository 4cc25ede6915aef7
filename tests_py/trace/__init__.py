"""Traces of runs in the trace event format."""
