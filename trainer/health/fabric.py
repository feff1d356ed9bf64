"""EFA and InfiniBand, as the kernel shows them: is each port up, and what did it count?

A port that is not up fails, and so does one that went down and came back since the last
reading, or is gone. Retransmissions, drops and timeouts are told and fail nobody: when a
node dies, they grow on the healthy ones that wrote to it.

Not covered: a fabric that is up and slow; an EFA device whose driver says that its port
is up though nothing passes (its kernel driver never says otherwise).
"""

from collections.abc import Mapping
from pathlib import Path

from trainer.health.counters import Counters, growth, in_words
from trainer.health.finding import Finding, failed, passed, skipped

CHECK = "fabric"
SYSFS = Path("/sys/class/infiniband")
FATAL = frozenset({"link_downed"})
TOLD = frozenset(
    {
        "rx_drops",
        "retrans_pkts",
        "retrans_timeout_events",
        "unresponsive_remote_events",
        "impaired_remote_conn_events",
        "symbol_error",
        "link_error_recovery",
        "port_rcv_errors",
    }
)
_HEALTHY = {"state": "ACTIVE", "phys_state": "LinkUp"}


def read_ports(root: Path = SYSFS) -> dict[str, dict[str, str]]:
    """What each port, such as ``rdmap0s6/1``, shows of its state. Empty without a fabric."""
    ports = sorted(root.glob("*/ports/*"))
    return {
        f"{port.parent.parent.name}/{port.name}": {name: _read(port / name) for name in _HEALTHY}
        for port in ports
    }


def read_counters(root: Path = SYSFS) -> dict[str, int]:
    counters: dict[str, int] = {}
    for port in root.glob("*/ports/*"):
        for name in FATAL | TOLD:
            for folder in ("hw_counters", "counters"):
                value = _read(port / folder / name)
                if value.isdecimal():
                    counters[f"{port.parent.parent.name}/{port.name}/{name}"] = int(value)
    return counters


def check_fabric(
    ports: Mapping[str, Mapping[str, str]], now: Counters, before: Counters
) -> Finding:
    seen = {name.rpartition("/")[0] for name in before if not name.startswith("gpu")}
    if not ports and not seen:
        return skipped(CHECK, f"no EFA or InfiniBand device in {SYSFS}")
    problems = [
        f"{port}: {name} is {shown or 'not readable'}, not {_HEALTHY[name]}"
        for port, states in ports.items()
        for name, shown in states.items()
        if shown.rpartition(": ")[2] != _HEALTHY[name]
    ]
    problems += [f"{port}: is gone" for port in sorted(seen - ports.keys())]
    grown = growth(now, before)
    dropped = {name: by for name, by in grown.items() if name.rpartition("/")[2] in FATAL}
    if dropped:
        problems.append(f"links went down since the last attempt: {in_words(dropped)}")
    if problems:
        return failed(CHECK, ", ".join(problems))
    since = f"; since the last attempt {in_words(grown)}" if grown else ""
    return passed(CHECK, f"{len(ports)} ports are up{since}")


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
