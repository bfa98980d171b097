"""`python -m dsforge.cli`: the program without its script."""

from __future__ import annotations

from dsforge.cli.main import run

run()
