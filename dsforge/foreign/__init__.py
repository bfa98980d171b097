"""Floor 5: files of other tools become findings, and what a recipe can carry of them."""
