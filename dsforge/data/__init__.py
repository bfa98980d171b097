"""Floor 5: offline data tools."""
