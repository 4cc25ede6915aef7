"""Programs in exact arithmetic: the engine, the meanings of ops, whole training steps."""
