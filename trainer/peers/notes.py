"""The two notes in a pod's memory folder: where its courier is, and what that may take.

Each is written whole or not at all, and read anew by whoever needs it, so that a courier or
a rank that starts anew finds what the one before it knew.
"""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

_ADDRESS = "courier.json"
_AWAITED = "awaited.json"
_ORDERS = "courier"


@dataclass(frozen=True, slots=True)
class Address:
    """How other pods' couriers reach this pod's."""

    host: str
    port: int
    token: str
    """Who does not know it is refused."""

    run: str
    """The run's folder by name, as in a snapshot's identity."""

    def write(self, folder: Path) -> None:
        _write(folder / _ADDRESS, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Raises ``OSError`` where this pod has no courier."""
        return cls(**json.loads((folder / _ADDRESS).read_bytes()))

    @staticmethod
    def remove(folder: Path) -> None:
        """Later attempts do without a courier."""
        (folder / _ADDRESS).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Awaited:
    """The shards that are sent to this pod in an attempt. Its ranks write it, all the same."""

    attempt: int
    coordinates: frozenset[int]
    limit_bytes: int
    """Of all files with others' shards together."""

    def write(self, folder: Path) -> None:
        """Raises ``OSError``."""
        _write(folder / _AWAITED, {**asdict(self), "coordinates": sorted(self.coordinates)})

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """None before the first attempt that sends any. Raises ``OSError``."""
        with suppress(FileNotFoundError):
            values = json.loads((folder / _AWAITED).read_bytes())
            return cls(**{**values, "coordinates": frozenset(values["coordinates"])})
        return None


@contextmanager
def orders_path(folder: Path) -> Iterator[str]:
    """The socket over which a pod's ranks give orders, under a name that is never too long."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{_ORDERS}"
    finally:
        os.close(descriptor)


def _write(path: Path, values: dict[str, Any]) -> None:
    # mkstemp makes it of mode 0600; the folder itself is its owner's alone, too.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with os.fdopen(descriptor, "w") as file:
        json.dump(values, file)
    Path(temporary).replace(path)
