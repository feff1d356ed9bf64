"""What a worker's first lines and the pod's standby process say to each other, and in which form.

Over one Unix stream: the standby greets with the variables that its imports have
already read; the worker's launcher process answers with an ``Order``, which is final,
and with its standard descriptors; from then on it sends signals, a byte each, and gets
four bytes back once the forked worker has ended. Only small modules of the standard
library are imported here, since every worker pays for them.

Not covered: two releases of this code that talk to each other; a pod has one.
"""

import json
import os
import socket
import struct
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

ADDRESS = "STEADFAST_STANDBY"
"""Names the socket; who connects is greeted once the standby is ready."""

REFUSED = -1
"""In place of how a worker ended: none was started."""

_LENGTH = struct.Struct("=I")
_STATUS = struct.Struct("=i")

_READ_AT_IMPORT = (
    "GLIBC_TUNABLES", "GOMP_", "HF_", "KMP_", "LD_", "MALLOC_", "MKL_", "NUMEXPR_", "OMP_",
    "OPENBLAS_", "PYTHON", "PYTORCH_", "TORCH_", "TRANSFORMERS_",
)  # fmt: skip
_READ_LATER = ("TORCH_ELASTIC_", "TORCH_NCCL_", "KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK")
"""By a launcher, or when communicators are made; launchers set some for their workers. The last
two are set by Intel's OpenMP itself once a launcher has imported PyTorch."""


class Order(NamedTuple):
    """All that a process gets from whoever starts it, but for its descriptors."""

    argv: list[str]
    cwd: str
    umask: int
    environment: dict[str, str]
    processors: list[int]
    blocked_signals: list[int]
    ignored_signals: list[int]


def read_at_import(environment: Mapping[str, str]) -> dict[str, str]:
    """Those variables that libraries read once, when they are imported or loaded."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_READ_AT_IMPORT) and not name.startswith(_READ_LATER)
    }


def send(connection: socket.socket, message: Any, descriptors: Iterable[int] = ()) -> None:
    # ASCII, in which JSON keeps even bytes of the environment that are no text.
    content = json.dumps(message).encode("ascii")
    header = _LENGTH.pack(len(content))
    socket.send_fds(connection, [header], list(descriptors))
    connection.sendall(content)


def receive(connection: socket.socket, num_descriptors: int = 0) -> tuple[Any, list[int]]:
    """The next message and the descriptors that came with it.

    Raises:
        EOFError: The other side has gone.
    """
    header, descriptors, _, _ = socket.recv_fds(connection, _LENGTH.size, num_descriptors)
    try:
        header += _read(connection, _LENGTH.size - len(header)) if header else b""
        if not header:
            raise EOFError
        return json.loads(_read(connection, *_LENGTH.unpack(header))), descriptors
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise


def send_status(connection: socket.socket, status: int) -> None:
    connection.sendall(_STATUS.pack(status))


def receive_status(connection: socket.socket) -> int:
    """How the worker ended, as ``os.waitpid`` says it; or REFUSED.

    Raises:
        EOFError: The standby has gone.
    """
    status: int = _STATUS.unpack(_read(connection, _STATUS.size))[0]
    return status


def _read(connection: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        part = connection.recv(size - len(content))
        if not part:
            raise EOFError
        content += part
    return content
