"""Floor 8: operations that join floors: smoke, verify, doctor."""
