"""Values on the host: arguments of calls, arrays, float8 and the floating-point environment."""
