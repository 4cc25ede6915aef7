"""Running of programs: streams, variables, checks and reports of a session."""
