"""Floor 4: a recipe becomes a plan. Pure: no torch, no clock, no I/O."""
