"""Floor 1: the strict, typed recipe, its loading with places, profiles, overrides and schema."""
