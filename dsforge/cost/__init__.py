"""Floor 3: what a layout costs. Pure."""
