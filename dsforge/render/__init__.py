"""Floor 5: a plan becomes a bundle of text files."""
