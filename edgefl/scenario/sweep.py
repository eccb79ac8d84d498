"""``sweep:``: the settings that a sweep of the scenario tries."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field


class SweepSpec(BaseModel):
    """Values to try, every combination of them or some drawn at random."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    grid: dict[str, Annotated[tuple[Any, ...], Field(min_length=1)]] = Field(
        min_length=1, description="for each dotted path (as in --set) the values to try"
    )
    random: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="try only so many of the combinations, drawn once for all; null: every one"
    )
