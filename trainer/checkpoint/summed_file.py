"""Files whose CRC-32 is summed while they are written, so that nobody reads them back for it."""

import io
import os
import zlib
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self, cast

from torch.distributed.checkpoint.filesystem import FileSystem

from trainer.checkpoint.layout import FileRecord

_LARGE_BYTES = 1 << 20
"""From here on a write is summed beside it, not after it: each takes a second for 1 GB."""


class SummedFile:
    """A new file, written from its beginning to its end."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._beside = ThreadPoolExecutor(1)  # has no thread before it is needed
        self._size = self._checksum = 0

    def write(self, content: bytes | memoryview) -> int:
        if len(content) < _LARGE_BYTES:
            self._file.write(content)
            self._checksum = zlib.crc32(content, self._checksum)
        else:
            checksum = self._beside.submit(zlib.crc32, content, self._checksum)
            try:
                self._file.write(content)
            finally:  # not before both are done with ``content``
                self._checksum = checksum.result()
        self._size += len(content)
        return len(content)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        self._file.flush()

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        self._beside.shutdown()
        self._file.close()

    def record(self, name: str) -> FileRecord:
        """What has been written, as a file of this name."""
        return FileRecord(name, self._size, self._checksum)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SummingFileSystem(FileSystem):
    """What PyTorch's ``FileSystemWriter`` writes through; it keeps the records of the files."""

    def __init__(self) -> None:
        self.files: list[FileRecord] = []

    @contextmanager
    def create_stream(
        self, path: str | os.PathLike[str], mode: str
    ) -> Generator[io.IOBase, None, None]:
        assert mode == "wb"
        with SummedFile(Path(path)) as file:
            yield cast(io.IOBase, file)
        self.files.append(file.record(Path(path).name))

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        super().rename(path, new_path)
        old, new = Path(path).name, Path(new_path).name
        self.files = [replace(f, name=new) if f.name == old else f for f in self.files]
