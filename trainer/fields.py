"""What every group of the trainer's settings is made of: strict, frozen, nothing unknown."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

LARGEST_STEP = 1_000_000_000

# Strict, because pydantic's own take True for 1, and YAML reads an unquoted yes as True.
PositiveInt = Annotated[int, Field(strict=True, gt=0)]
NonNegativeInt = Annotated[int, Field(strict=True, ge=0)]

Fraction = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(gt=0, le=7 * 24 * 3600)]


class Settings(BaseModel):
    """Frozen, and a key that is not declared is an error."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )
