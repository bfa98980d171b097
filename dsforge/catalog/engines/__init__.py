"""Facts about engines, one file per engine and version."""
