"""Which system calls change files, and how to have the kernel stop a process at them.

A seccomp filter, kept by every thread and child, stops at these calls and no
others; the tracer learns the number and the arguments and finds the path. Not
covered: writes through a memory mapping, which no call announces.
"""

import ctypes
import os
import platform
import re
import struct
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

# Number of each call on (x86_64, aarch64); None where it does not exist. Then where its
# paths are: "f0" a descriptor in argument 0, "p0" a path, "a0" a path relative to the
# descriptor before it.
_CALLS: dict[str, tuple[int, int | None, str]] = {
    "write": (1, 64, "f0"),
    "pwrite64": (18, 68, "f0"),
    "writev": (20, 66, "f0"),
    "pwritev": (296, 70, "f0"),
    "sendfile": (40, 71, "f0"),
    "fsync": (74, 82, "f0"),
    "fdatasync": (75, 83, "f0"),
    "ftruncate": (77, 46, "f0"),
    "fallocate": (285, 47, "f0"),
    "copy_file_range": (326, 285, "f2"),
    "open": (2, None, "p0"),
    "openat": (257, 56, "a0"),
    "creat": (85, None, "p0"),
    "truncate": (76, 45, "p0"),
    "rename": (82, None, "p0 p1"),
    "renameat": (264, 38, "a0 a2"),
    "renameat2": (316, 276, "a0 a2"),
    "link": (86, None, "p0 p1"),
    "linkat": (265, 37, "a0 a2"),
    "unlink": (87, None, "p0"),
    "unlinkat": (263, 35, "a0"),
    "rmdir": (84, None, "p0"),
    "mkdir": (83, None, "p0"),
    "mkdirat": (258, 34, "a0"),
}
_MACHINES = {"x86_64": (0, 317), "aarch64": (1, 277)}  # column above, number of seccomp(2)
RESULT_REGISTER = {"x86_64": 10, "aarch64": 0}
"""Which of a thread's general registers, as ptrace(2) numbers them, holds a call's result."""

ROOT = "."
"""The path of the watched folder itself."""

_FLAGS_ARGUMENT = {"open": 1, "openat": 2}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_AT_FDCWD = -100

_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_RET_TRACE, _RET_ALLOW = 0x7FF00000, 0x7FFF0000
_PR_SET_NO_NEW_PRIVS = 38


@dataclass(frozen=True, slots=True)
class Operation:
    """One change of a file under the watched folder, as a process was about to make it."""

    process: str
    """``rank 0``, or ``writer 0`` for a process that rank 0 started."""

    call: str
    path: str
    """Relative to the folder; a process's number in it is replaced by ``PID``."""


def numbers() -> dict[int, str]:
    """The calls of this machine by number.

    Raises:
        OSError: the machine is of a kind whose numbers are not known here.
    """
    if platform.machine() not in _MACHINES:
        raise OSError(f"system calls of {platform.machine()} are not known")
    column, _ = _MACHINES[platform.machine()]
    return {entry[column]: name for name, entry in _CALLS.items() if entry[column] is not None}  # type: ignore[misc]


def install_filter(calls: Collection[str]) -> None:
    """From now on this process and its children stop for their tracer at these ``calls``.

    Raises:
        OSError: the kernel refuses.
    """
    known = sorted(number for number, call in numbers().items() if call in calls)
    program = struct.pack("HBBI", _LOAD, 0, 0, 0)
    for index, number in enumerate(known):
        program += struct.pack("HBBI", _JUMP_IF_EQUAL, len(known) - index, 0, number)
    program += struct.pack("HBBI", _RETURN, 0, 0, _RET_ALLOW)
    program += struct.pack("HBBI", _RETURN, 0, 0, _RET_TRACE)
    held = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(held))
    )
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")
    if libc.syscall(_MACHINES[platform.machine()][1], 1, 0, header):
        raise OSError(ctypes.get_errno(), "seccomp(SECCOMP_SET_MODE_FILTER)")


def paths_of(pid: int, call: str, arguments: tuple[int, ...]) -> list[str]:
    """The absolute paths that ``call`` is about to change; none for an open that only reads."""
    if call in _FLAGS_ARGUMENT and not arguments[_FLAGS_ARGUMENT[call]] & _WRITING:
        return []
    return [_path(pid, where, arguments) for where in _CALLS[call][2].split()]


def without_pids(path: str) -> str:
    return re.sub(r"(?<=\.)\d+$", "PID", path)


def _path(pid: int, where: str, arguments: tuple[int, ...]) -> str:
    kind, index = where[0], int(where[1])
    if kind == "f":
        return _link(pid, f"fd/{arguments[index]}")
    if kind == "p":
        return str(Path(_link(pid, "cwd"), _text(pid, arguments[index])))
    base = ctypes.c_int(arguments[index]).value
    folder = _link(pid, "cwd") if base == _AT_FDCWD else _link(pid, f"fd/{base}")
    return str(Path(folder, _text(pid, arguments[index + 1])))


def _link(pid: int, name: str) -> str:
    try:
        return str(Path(f"/proc/{pid}/{name}").readlink())
    except OSError:  # a descriptor that is not open: the call will fail
        return ""


def _text(pid: int, address: int) -> str:
    content = b""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        while b"\0" not in content:
            memory.seek(address + len(content))
            # Not beyond the end of a page, behind which nothing may be mapped.
            content += memory.read(4096 - (address + len(content)) % 4096)
    return content.split(b"\0", 1)[0].decode(errors="replace")
