"""Session options: the table of all of them, and what follows from it."""
