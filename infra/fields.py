"""What every settings class here is made of: the strict base and the checked kinds of text."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

# Strict, because pydantic's own takes True for 1, and YAML reads an unquoted yes as True.
PositiveInt = Annotated[int, Field(strict=True, gt=0)]
DnsLabel = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=40)]
GroupName = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=20)]


class Settings(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )
