"""Floor 0: errors, places, units, canonical JSON, atomic files, shell quoting."""
