"""Independent references: values computed from definitions, without popsr."""
