"""Calls that must fail cleanly: arguments that do not fit, memory that runs out, Ctrl-C."""
