"""The fastest layout that fits, among those that the trainer's rules allow. Exact within the cost model."""
