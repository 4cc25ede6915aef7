"""Recording of models: the methods of a ``popart.Builder`` by op, their attributes, and types of what they make."""
