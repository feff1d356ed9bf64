"""What the controller is told: one JSON file, and the names that its chart makes for it."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

NAMESPACE = "node-repair"
SERVICE_ACCOUNT = "node-repair"
RECORD = "repairs"
"""ConfigMap that remembers which repairs were started; the chart makes it empty."""

Positive = Annotated[int, Field(strict=True, gt=0)]


class RepairSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    cluster: Annotated[str, Field(min_length=1)]
    region: Annotated[str, Field(min_length=1)]
    auto_scaling_groups: Annotated[tuple[str, ...], Field(min_length=1)]
    """Names. A node of any other group is never touched."""

    mode: Literal["dry-run", "act"]
    accelerator_seconds: Positive
    """How long the monitoring agent must have called GPUs or fabric broken."""

    not_ready_seconds: Positive
    """How long a node must not have been Ready."""

    boot_seconds: Positive
    """A node younger than this may be not Ready: it still installs drivers."""

    max_at_once: Positive
    max_per_hour: Positive

    def to_json(self) -> str:
        """The file that ``read`` takes."""
        return self.model_dump_json(indent=2) + "\n"


def read(file: Path) -> RepairSettings:
    """Read and check ``file``.

    Raises:
        ValueError: it cannot be read or a setting is wrong; one line.
    """
    try:
        return RepairSettings.model_validate_json(file.read_bytes())
    except OSError as error:
        raise ValueError(f"cannot read {file}: {error.strerror}; give --settings") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"]) or "file"
        raise ValueError(f"{file}: {key}: {first['msg']}; correct it there") from error
