"""Floor 9: one thin file a command; one printing module; one map from errors to exit codes."""
