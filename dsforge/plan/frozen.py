"""The base of everything in a plan."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Base of all plan records: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
