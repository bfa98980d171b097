"""Floor 1: every versioned format that crosses a process boundary. Standard library only."""
