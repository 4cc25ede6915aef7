"""Traces of runs: times of instructions and threads in the trace event format of Chrome, which Perfetto reads."""
