"""Checksums that are summed while a file is written are those of the file."""

import errno
import threading
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainer.checkpoint import summed_file
from trainer.checkpoint.layout import FileRecord, record_file
from trainer.checkpoint.summed_file import SummedFile, SummingFileSystem


@given(pieces=st.lists(st.binary(max_size=40), max_size=8))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_record_is_that_of_the_file_however_it_was_written(
    pieces: list[bytes], tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(summed_file, "_LARGE_BYTES", 20)  # so that both ways are taken
        with SummedFile(tmp_path / "file") as file:
            for piece in pieces:
                assert file.write(memoryview(piece)) == len(piece)
            assert file.tell() == sum(map(len, pieces))
    assert file.record("file") == record_file(tmp_path / "file")
    assert not [t for t in threading.enumerate() if "ThreadPool" in t.name]


def test_a_write_that_fails_is_raised_and_leaves_no_thread() -> None:
    with pytest.raises(OSError) as failed, SummedFile(Path("/dev/full")) as file:  # noqa: PT011
        file.write(bytes(4 << 20))
    assert failed.value.errno == errno.ENOSPC
    assert not [t for t in threading.enumerate() if "ThreadPool" in t.name]


def test_a_renamed_file_is_recorded_by_its_last_name(tmp_path: Path) -> None:
    files = SummingFileSystem()
    for name in ("a.tmp", "b"):
        with files.create_stream(tmp_path / name, "wb") as stream:
            stream.write(b"values")
    files.rename(tmp_path / "a.tmp", tmp_path / "a")
    checksum = zlib.crc32(b"values")
    assert files.files == [FileRecord("a", 6, checksum), FileRecord("b", 6, checksum)]
