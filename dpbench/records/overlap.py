"""How many images of one split stand in another one too. No torch here: results are read without it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Overlap(BaseModel):
    """Of `among` images, how many are the same as one of the others, and how many the same or near (`duplicates`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    exact: int = Field(ge=0)
    near: int = Field(ge=0)  # the exact ones included
    among: int = Field(ge=0)

    def __str__(self) -> str:
        return f"{self.near:,} of {self.among:,} images, {self.exact:,} exactly"
