"""Options of a program: the table of all session options of PopART, and how they are read."""
