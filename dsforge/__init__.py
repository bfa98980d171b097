"""One readable recipe becomes a plan, files, a supervised training run and findings."""

__version__ = "0.1.0"
