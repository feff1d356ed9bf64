"""The GPU's NVLinks: is each that it has up, and has one had to recover since the last attempt?

Replays and checksum errors are told and fail nobody: a link repeats what was garbled.
A GPU none of whose links is up is taken for one that was given none, as in a machine with
a part of a node: that is skipped, since where links were needed the cuda check fails too.
A link that was up at the last attempt is down when it is not up now, whatever the others are.

Not covered: switches (their own faults show as links down), and the speed of a link.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from trainer.health.counters import Counters, growth, in_words
from trainer.health.finding import Finding, failed, passed, skipped
from trainer.health.nvml import answer, handle_of

CHECK = "nvlink"
_COUNTED = {"recovery": "RECOVERY", "replay": "REPLAY", "crc_flit": "CRC_FLIT"}


def check_gpu(nvml: Any, local_rank: int, before: Counters, now: dict[str, int]) -> Finding:
    """Ask the driver; what the links have counted is added to ``now``."""
    try:
        up, counted = read_links(nvml, local_rank)
    except (nvml.NVMLError, IndexError) as error:
        return failed(CHECK, f"GPU {local_rank}: {error}")
    counters = as_counters(local_rank, counted)
    now.update(counters)
    return check_links(local_rank, up, growth(counters, before), seen=links_in(before, local_rank))


def read_links(nvml: Any, local_rank: int) -> tuple[dict[int, bool], dict[int, dict[str, int]]]:
    """Of each link that the GPU has: whether it is up; what it has counted."""
    handle = handle_of(nvml, local_rank)
    up: dict[int, bool] = {}
    counted: dict[int, dict[str, int]] = {}
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        state = answer(nvml, partial(nvml.nvmlDeviceGetNvLinkState, handle, link))
        if state is None:
            continue  # no such link
        up[link] = bool(state)
        if up[link]:
            counted[link] = _counts(nvml, handle, link)
    return up, counted


def _counts(nvml: Any, handle: Any, link: int) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name, of_nvml in _COUNTED.items():
        kind = getattr(nvml, f"NVML_NVLINK_ERROR_DL_{of_nvml}")
        value = answer(nvml, partial(nvml.nvmlDeviceGetNvLinkErrorCounter, handle, link, kind))
        if value is not None:
            counts[name] = int(value)
    return counts


def as_counters(local_rank: int, counted: dict[int, dict[str, int]]) -> dict[str, int]:
    return {
        f"gpu{local_rank}/link{link}/{name}": value
        for link, counts in counted.items()
        for name, value in counts.items()
    }


def links_in(counters: Counters, local_rank: int) -> frozenset[int]:
    """The links of the GPU that were up when these counters were read."""
    parts = (name.split("/") for name in counters if name.startswith(f"gpu{local_rank}/link"))
    return frozenset(int(link.removeprefix("link")) for _, link, _ in parts)


def check_links(
    local_rank: int, up: Mapping[int, bool], grown: Counters, *, seen: frozenset[int]
) -> Finding:
    up = dict.fromkeys(sorted(seen), False) | dict(up)
    if not seen and not any(up.values()):
        which = f"none of its {len(up)} NVLinks is in use" if up else "it has no NVLink"
        return skipped(CHECK, f"GPU {local_rank}: {which}")
    if down := [str(link) for link, is_up in up.items() if not is_up]:
        return failed(CHECK, f"GPU {local_rank}: of {len(up)} links, down: {', '.join(down)}")
    recovered = {name: by for name, by in grown.items() if name.endswith("/recovery")}
    if recovered:
        return failed(CHECK, f"links had to recover since the last attempt: {in_words(recovered)}")
    since = f"; since the last attempt {in_words(grown)}" if grown else ""
    return passed(CHECK, f"GPU {local_rank}: {len(up)} links are up{since}")
