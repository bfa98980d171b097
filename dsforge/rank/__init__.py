"""Floor 5: around every trainer process, on every rank. Standard library only."""
