"""Floor 2: who holds what; parameter arithmetic, ranks, stages, batch. Pure."""
