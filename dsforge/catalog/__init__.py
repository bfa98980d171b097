"""Floor 1: data with sources: models, hardware, engines."""
