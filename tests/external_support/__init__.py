"""Programs that `trainer: external` starts in tests, and recipes for them."""
