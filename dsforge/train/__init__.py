"""Floor 5: the trainers that run on the ranks, and the one-process reference."""
