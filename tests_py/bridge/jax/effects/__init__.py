"""Steps that call out of their program, or write to references."""
