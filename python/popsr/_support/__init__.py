"""Helpers of every room: texts of errors, arguments, host arrays, exact numbers. It knows no program."""
