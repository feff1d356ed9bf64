"""Prepared datasets: both token widths are read, and each kind of damage is named."""

import json
import struct
from pathlib import Path

import pytest

from trainer.data import open_corpus
from trainer.dataset_folder import DatasetError, DatasetFolder
from trainer.settings import DataSettings

GOOD = {"vocabulary_size": 70_000, "end_of_text": 0, "dtype": "uint32", "num_tokens": 4}


def prepare(folder: Path, manifest: dict[str, object], tokens: bytes) -> Path:
    (folder / "dataset.json").write_text(json.dumps(manifest))
    (folder / "tokens.bin").write_bytes(tokens)
    return folder


def test_uint32_tokens_are_read_as_they_were_written(tmp_path: Path) -> None:
    corpus = DatasetFolder(prepare(tmp_path, GOOD, struct.pack("<4I", 1, 69_999, 3, 0)))
    assert len(corpus) == 4
    assert corpus.read(1, 9).tolist() == [69_999, 3, 0]


def test_uint16_tokens_are_read_as_they_were_written(tmp_path: Path) -> None:
    manifest = {**GOOD, "dtype": "uint16"}
    corpus = DatasetFolder(prepare(tmp_path, manifest, struct.pack("<4H", 1, 65_535, 3, 0)))
    assert corpus.read(0, 2).tolist() == [1, 65_535]


def test_settings_that_name_a_folder_open_it(tmp_path: Path) -> None:
    prepare(tmp_path, GOOD, struct.pack("<4I", 1, 2, 3, 0))
    settings = DataSettings(dataset=tmp_path, sequence_length=2, global_batch_size=1)
    assert isinstance(open_corpus(settings), DatasetFolder)


def test_a_folder_without_manifest_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"dataset\.json: cannot be read .* dataset job"):
        DatasetFolder(tmp_path)


def test_a_misspelt_manifest_key_is_refused_by_name(tmp_path: Path) -> None:
    prepare(tmp_path, {**GOOD, "num_token": 4}, b"")
    with pytest.raises(DatasetError, match="did you mean 'num_tokens'"):
        DatasetFolder(tmp_path)


def test_a_truncated_token_file_is_refused_with_both_sizes(tmp_path: Path) -> None:
    prepare(tmp_path, GOOD, struct.pack("<3I", 1, 2, 3))
    with pytest.raises(DatasetError, match=r"has 12 bytes .* 16 bytes"):
        DatasetFolder(tmp_path)


def test_a_missing_token_file_is_refused_by_name(tmp_path: Path) -> None:
    prepare(tmp_path, GOOD, b"")
    (tmp_path / "tokens.bin").unlink()
    with pytest.raises(DatasetError, match=r"tokens\.bin: cannot be read"):
        DatasetFolder(tmp_path)


def test_an_end_of_text_outside_the_vocabulary_is_refused(tmp_path: Path) -> None:
    prepare(tmp_path, {**GOOD, "end_of_text": 70_000}, b"")
    with pytest.raises(DatasetError, match="end_of_text 70000 must be below vocabulary_size 70000"):
        DatasetFolder(tmp_path)


def test_a_token_outside_the_vocabulary_is_refused_when_read(tmp_path: Path) -> None:
    corpus = DatasetFolder(prepare(tmp_path, GOOD, struct.pack("<4I", 1, 2, 70_000, 0)))
    assert corpus.read(0, 2).tolist() == [1, 2]
    with pytest.raises(DatasetError, match="token 70000 between 2 and 4"):
        corpus.read(2, 4)
