"""What every check is given: whom to ask, what to expect, and the time."""

from dataclasses import dataclass
from datetime import datetime

from infra.aws import Clients
from infra.settings import InfraSettings


@dataclass(frozen=True, slots=True)
class Case:
    clients: Clients
    settings: InfraSettings
    now: datetime
    """In UTC, with a time zone."""
