"""DeepSpeed's configuration: what the engine would do with it, and a recipe of it."""
