"""The user's side of a trace: lines, modules, patterns of paths, and what torch logs about its own work."""
