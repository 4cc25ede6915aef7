"""Running programs: streams, variables, checks, threads, interruption."""
