"""Task sessions, streams, remote and memory-mapped data."""
