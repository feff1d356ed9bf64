"""Nothing is deleted, and no marker set, before what it relies on is durable.

A killed process loses nothing that it has written, so the crash points cannot show a
missing fsync. The order of the system calls does.
"""

from collections.abc import Callable

import pytest

from tests.trainer.crashes.conftest import Operations, Prepare
from tests.trainer.crashes.syscalls import ROOT, Operation
from trainer.checkpoint.layout import COMMIT_RECORD, committed, folder_name

FOLDER = folder_name(6, 2)
OLDEST = folder_name(2, 1)
WRITES = {"write", "pwrite64", "writev", "pwritev", "sendfile", "copy_file_range"}
FILES = {
    "sync": {"__0_0.distcp", "__1_0.distcp", ".metadata"},
    "async": {"__0_0.distcp", "__1_0.distcp", ".metadata"},
    "async_local_shards": {"rank-0.pt", "rank-1.pt"},
}

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(240)]


def first(
    operations: list[Operation], what: str, holds: Callable[[Operation], bool], *, after: int = -1
) -> int:
    for at, operation in enumerate(operations):
        if at > after and holds(operation):
            return at
    raise AssertionError(f"no {what} after call {after}")


def fsync(operations: list[Operation], path: str, *, after: int) -> int:
    return first(
        operations,
        f"fsync of {path}",
        lambda o: o.call in {"fsync", "fdatasync"} and o.path == path,
        after=after,
    )


def durable_at(operations: list[Operation], file: str) -> int:
    """The call by which both the content and the name of ``file`` in ``FOLDER`` are durable."""
    path = f"{FOLDER}/{file}"
    renames = [
        at
        for at, operation in enumerate(operations)
        if operation.call.startswith("rename") and operation.path.endswith(f" {path}")
    ]
    written = operations[renames[0]].path.split()[0] if renames else path
    last = max(at for at, o in enumerate(operations) if o.call in WRITES and o.path == written)
    content = fsync(operations, written, after=last)
    assert not renames or content < renames[0], f"{file} has its name before its content"
    named = renames[0] if renames else last
    return max(content, fsync(operations, FOLDER, after=named))


@pytest.mark.parametrize("mode", FILES)
def test_what_a_checkpoint_relies_on_is_durable_first(
    mode: str, operations: Operations, prepared: Prepare
) -> None:
    calls = operations(mode)
    marker = first(calls, "marker", lambda o: o.path.endswith(f" {FOLDER}/{COMMIT_RECORD}"))
    record = committed(prepared(mode).folder / "run" / "checkpoints")[0].record
    assert {file.name for file in record.files} == FILES[mode]
    made = first(calls, "folder", lambda o: o.call.startswith("mkdir") and o.path == FOLDER)
    assert fsync(calls, ROOT, after=made) < marker
    for file in FILES[mode]:
        assert durable_at(calls, file) < marker, f"{file} is not durable before the marker"
    deletion = first(calls, "deletion", lambda o: o.path == f"{OLDEST}/{COMMIT_RECORD}")
    assert durable_at(calls, COMMIT_RECORD) < deletion
    others = first(calls, "deletion", lambda o: o.path.startswith(OLDEST), after=deletion + 1)
    assert fsync(calls, OLDEST, after=deletion) <= others
