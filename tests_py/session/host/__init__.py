"""Data of the host: streams, copies of variables, shared memory."""
