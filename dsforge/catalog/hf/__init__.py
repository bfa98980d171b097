"""Reads Hugging Face `config.json` files as data; code that a file points to is never run."""
