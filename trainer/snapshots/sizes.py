"""How many snapshot buffers fit into a pod's memory, and why not more.

``plan_buffers`` is pure. What it is given is read here too: the room in the folder's file
system, and what the pod's cgroup leaves, of version 1 or 2. Buffers that are there already,
of an earlier process, count as room. Pages of shared memory count against both.

Not covered: memory that other pods or the system take from a node whose pods have no limit.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from trainer.snapshots.pool import LEAST_BUFFERS

_USED_FRACTION = 0.9
"""Of what is free; the rest is for what the pod's processes have yet to take."""

_GIB = 1 << 30
_UNLIMITED_BYTES = 1 << 60
"""Version 1 has no word for it, only a number close to 2**63."""


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes for the buffers of all ranks of a pod together."""

    folder_bytes: int
    memory_bytes: int | None
    """Of the cgroup; None if it has no limit."""

    def without(self, num_bytes: int) -> "Room":
        """What is left when so many are taken for something else."""
        memory = None if self.memory_bytes is None else max(0, self.memory_bytes - num_bytes)
        return Room(max(0, self.folder_bytes - num_bytes), memory)


@dataclass(frozen=True, slots=True)
class BufferPlan:
    num_buffers: int
    """Of a rank; 0 where there cannot be snapshots."""

    reason: str
    """Why they are fewer than wanted, and what to do about it; else empty."""


PEER_BUFFERS = 2
"""More, where snapshots are copied to another node: the last one that is there, and the next."""


def buffers_wanted(*, saves_from_them: bool) -> int:
    """One is filled while another is the newest that all ranks have, and a third is saved."""
    return LEAST_BUFFERS + saves_from_them


def plan_buffers(buffer_bytes: int, *, wanted: int, ranks_here: int, room: Room) -> BufferPlan:
    """How many of the ``wanted`` buffers of ``buffer_bytes`` each of a pod's ranks can have.

    Ranks may see the memory at different moments: the smallest of their plans is what counts.
    """
    bounds = [("/dev/shm", room.folder_bytes)]
    if room.memory_bytes is not None:
        bounds.append(("the pod's memory", room.memory_bytes))
    scarce, free_bytes = min(bounds, key=lambda bound: bound[1])
    fitting = int(free_bytes * _USED_FRACTION) // (max(buffer_bytes, 1) * ranks_here)
    if fitting >= wanted:
        return BufferPlan(wanted, "")
    needed = wanted * buffer_bytes * ranks_here / _USED_FRACTION
    num_buffers = fitting if fitting >= LEAST_BUFFERS else 0
    cost = "none are taken while a checkpoint is written" if num_buffers else "none can be taken"
    return BufferPlan(
        num_buffers,
        f"snapshots in memory: {cost}; {wanted} buffers of {_gib(buffer_bytes)} for each of "
        f"{ranks_here} ranks take {_gib(needed)}, and {scarce} has {_gib(free_bytes)}; raise its "
        "limit, or shard the state over more ranks",
    )


def room_in(
    folder: Path,
    *,
    membership: Path = Path("/proc/self/cgroup"),
    cgroups: Path = Path("/sys/fs/cgroup"),
) -> Room:
    """What this process finds now.

    Raises:
        OSError: there is no such folder.
    """
    # First: what is added to it while the rest is read makes the answer smaller, not larger.
    ours = _allocated_bytes(folder)
    system = os.statvfs(folder)
    headroom = _cgroup_headroom(membership, cgroups)
    return Room(
        folder_bytes=ours + system.f_bavail * system.f_frsize,
        memory_bytes=None if headroom is None else max(0, ours + headroom),
    )


def _allocated_bytes(folder: Path) -> int:
    total = 0
    for entry in os.scandir(folder):
        try:
            total += entry.stat().st_blocks * 512
        except FileNotFoundError:
            continue  # it has just been replaced
    return total


def _cgroup_headroom(membership: Path, cgroups: Path) -> int | None:
    """The least that the cgroups of this process leave; None if none has a limit."""
    found = _memory_cgroup(membership)
    if found is None:
        return None
    path, is_first_version = found
    top = cgroups / "memory" if is_first_version else cgroups
    # In a container the path may be the host's, of which only the own top is to be seen.
    below = top / path.lstrip("/")
    folders = [each for each in (below, *below.parents) if each.is_relative_to(top)]
    read = _headroom_v1 if is_first_version else _headroom_v2
    left = [each for folder in folders if (each := read(folder)) is not None]
    return min(left, default=None)


def _memory_cgroup(membership: Path) -> tuple[str, bool] | None:
    """The path of the cgroup that counts our memory, and whether it is of version 1."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return None
    second: tuple[str, bool] | None = None
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return path, True
        if number == "0":
            second = path, False
    return second


def _headroom_v1(folder: Path) -> int | None:
    return _headroom(
        _number(folder / "memory.limit_in_bytes"),
        _number(folder / "memory.usage_in_bytes"),
        _statistic(folder / "memory.stat", "total_inactive_file"),
    )


def _headroom_v2(folder: Path) -> int | None:
    return _headroom(
        _number(folder / "memory.max"),
        _number(folder / "memory.current"),
        _statistic(folder / "memory.stat", "inactive_file"),
    )


def _headroom(limit: int | None, usage: int | None, reclaimable: int) -> int | None:
    if limit is None or usage is None or limit >= _UNLIMITED_BYTES:
        return None
    return limit - max(0, usage - reclaimable)


def _number(file: Path) -> int | None:
    """None too for ``max``, and where there is no such file, as at a mount's top."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def _statistic(file: Path, name: str) -> int:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name} ")), 0)


def _gib(num_bytes: float) -> str:
    return f"{num_bytes / _GIB:.1f} GiB"
