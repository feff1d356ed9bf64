"""A prepared dataset: a folder with one flat file of token ids and a manifest that describes it.

``dataset.json`` says what ``tokens.bin`` holds: little-endian ids, one document
after another, each closed by ``end_of_text``. The file is mapped, not read, so
every rank may open it. Not covered: damage inside the file; its length is
checked, and ids outside the vocabulary are refused when they are read.
"""

import hashlib
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import NonNegativeInt, PositiveInt, ValidationError

from trainer.fields import Settings
from trainer.refusals import explain

if TYPE_CHECKING:
    from torch import Tensor

MANIFEST_NAME = "dataset.json"
TOKENS_NAME = "tokens.bin"

_NUM_PROBES = 64
_PROBE_BYTES = 4096


class DatasetError(ValueError):
    """A dataset folder that cannot be trained on; the message names the file and the remedy."""


class TokenType(StrEnum):
    UINT16 = "uint16"
    UINT32 = "uint32"

    @property
    def size_bytes(self) -> int:
        return {TokenType.UINT16: 2, TokenType.UINT32: 4}[self]


class DatasetManifest(Settings):
    vocabulary_size: PositiveInt
    end_of_text: NonNegativeInt
    """The id that closes a document; below ``vocabulary_size``."""

    dtype: TokenType
    num_tokens: PositiveInt


class DatasetFolder:
    """The corpus in ``folder``.

    Raises:
        DatasetError: a file is missing, the manifest is wrong, or the two do not agree.
    """

    def __init__(self, folder: Path) -> None:
        import torch  # late: whoever asks only what a folder is starts without it

        manifest = _read_manifest(folder / MANIFEST_NAME)
        self.vocabulary_size = manifest.vocabulary_size
        self.end_of_text = manifest.end_of_text
        self._path = folder / TOKENS_NAME
        _check_size(self._path, manifest)
        self._tokens = torch.from_file(
            str(self._path),
            shared=False,
            size=manifest.num_tokens,
            dtype={TokenType.UINT16: torch.uint16, TokenType.UINT32: torch.uint32}[manifest.dtype],
        )

    def __len__(self) -> int:
        return len(self._tokens)

    def read(self, start: int, stop: int) -> "Tensor":
        tokens = self._tokens[start:stop].long()
        highest = int(tokens.max()) if len(tokens) else 0
        if highest >= self.vocabulary_size:
            raise DatasetError(
                f"{self._path}: token {highest} between {start} and {stop} is outside the "
                f"vocabulary of {self.vocabulary_size}; prepare the dataset again"
            )
        return tokens


def identity_of_folder(folder: Path) -> str:
    """A hash of the manifest and of 64 pages of tokens, spread evenly; milliseconds.

    Tokens of another text, order or tokenizer differ in these pages. Not covered: a
    file that was changed in a few places between them.

    Raises:
        DatasetError: as ``DatasetFolder``.
    """
    manifest = _read_manifest(folder / MANIFEST_NAME)
    path = folder / TOKENS_NAME
    _check_size(path, manifest)
    result = hashlib.sha256(manifest.model_dump_json().encode())
    last = max(path.stat().st_size - _PROBE_BYTES, 0)
    try:
        with path.open("rb", buffering=0) as file:
            for probe in range(_NUM_PROBES):
                file.seek(last * probe // (_NUM_PROBES - 1))
                result.update(file.read(_PROBE_BYTES))
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read ({error.strerror})") from error
    return f"dataset {result.hexdigest()[:16]}"


def _read_manifest(path: Path) -> DatasetManifest:
    try:
        manifest = DatasetManifest.model_validate_json(path.read_bytes())
    except OSError as error:
        raise DatasetError(
            f"{path}: cannot be read ({error.strerror}); data.dataset must name a folder that "
            "the dataset job has finished"
        ) from error
    except ValidationError as error:
        raise DatasetError("; ".join(explain(error, DatasetManifest, source=str(path)))) from error
    if manifest.end_of_text >= manifest.vocabulary_size:
        raise DatasetError(
            f"{path}: end_of_text {manifest.end_of_text} must be below vocabulary_size "
            f"{manifest.vocabulary_size}"
        )
    return manifest


def _check_size(path: Path, manifest: DatasetManifest) -> None:
    expected = manifest.num_tokens * manifest.dtype.size_bytes
    try:
        actual = path.stat().st_size
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read ({error.strerror})") from error
    if actual != expected:
        raise DatasetError(
            f"{path}: has {actual} bytes but {MANIFEST_NAME} promises {manifest.num_tokens} tokens "
            f"of {manifest.dtype.value}, {expected} bytes; prepare the dataset again"
        )
