"""What the processes of a rehearsed run hold, by role: memory, descriptors, threads.

Proportional memory (PSS), not resident: a forked monitor shares most of its
pages with its rank. Without pages of files, whose shares change with whoever else on the
computer runs the same libraries. Not covered: GPU memory, which only a rank itself can ask for.
"""

import re
from collections import defaultdict
from pathlib import Path

ENTRY, LAUNCHER, RANK, OTHER = "entry", "launcher", "rank", "other"
SHARED_MEMORY = Path("/dev/shm")


def role_of(arguments: str, *, name: str = "python", has_rank: bool) -> str:
    """Told by the command line; ``has_rank`` if its environment says which rank it is.

    A rank that was forked from a standby has the standby's line and a ``name`` of its own; the
    process that the launcher started for it counts as a rank, too.
    """
    if "trainer.entry" in arguments:
        return ENTRY
    if "ft_launcher" in arguments or "torchrun" in arguments:
        return LAUNCHER
    is_rank = has_rank and "trainer.train" in arguments
    return RANK if is_rank or name.startswith("rank ") else OTHER


def sample(mark: bytes, proc: Path = Path("/proc")) -> dict[str, float]:
    """By role, over the processes whose environment holds ``mark``: sums, of memory the mean."""
    sums: dict[str, float] = defaultdict(float)
    for process in proc.iterdir():
        if process.name.isdigit():
            _add(sums, process, mark)
    for role in (ENTRY, LAUNCHER, RANK, OTHER):
        if count := sums.get(f"{role} processes"):
            sums[f"{role} pss_bytes"] /= count
    files = [path.stat() for path in SHARED_MEMORY.iterdir()]
    sums["shm files"] = len(files)
    sums["shm_bytes"] = sum(each.st_size for each in files)
    return dict(sums)


def _add(sums: dict[str, float], process: Path, mark: bytes) -> None:
    try:
        environment = (process / "environ").read_bytes().split(b"\0")
        if not any(each.startswith(mark) for each in environment):
            return
        arguments = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        name = (process / "comm").read_text()
        rollup = (process / "smaps_rollup").read_text()
        own = re.findall(r"^Pss_(?:Anon|Shmem):\s+(\d+) kB", rollup, re.M)  # Linux 5.3 and later
        threads = len(list((process / "task").iterdir()))
        descriptors = len(list((process / "fd").iterdir()))
    except OSError:
        return  # it ended meanwhile
    if not own:
        return
    has_rank = any(each.startswith(b"RANK=") for each in environment)
    role = role_of(arguments, name=name, has_rank=has_rank)
    sums[f"{role} processes"] += 1
    sums[f"{role} threads"] += threads
    sums[f"{role} descriptors"] += descriptors
    sums[f"{role} pss_bytes"] += 1024 * sum(map(int, own))
