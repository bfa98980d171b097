"""Floor 7: starting, supervising and recording a run."""
