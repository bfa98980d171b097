"""One file a step of the recipe format, each with a `STEP`; found by being there."""
