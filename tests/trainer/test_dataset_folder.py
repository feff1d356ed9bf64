"""Prepared datasets: both token widths are read, and each kind of damage is named."""

import json
import shutil
import struct
from pathlib import Path

import pytest

from trainer.data import open_corpus
from trainer.data_identity import data_identity
from trainer.dataset_folder import DatasetError, DatasetFolder, identity_of_folder
from trainer.settings import DataSettings

GOOD = {"vocabulary_size": 70_000, "end_of_text": 0, "dtype": "uint32", "num_tokens": 4}


def prepare(folder: Path, manifest: dict[str, object], tokens: bytes) -> Path:
    folder.mkdir(exist_ok=True)
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


def test_a_dataset_is_the_same_wherever_it_lies(tmp_path: Path) -> None:
    prepare(tmp_path / "here", GOOD, struct.pack("<4I", 1, 2, 3, 0))
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    (tmp_path / "there/dataset.json").write_text(json.dumps(GOOD, indent=4))
    here, there = (
        data_identity(DataSettings(dataset=tmp_path / name, sequence_length=2, global_batch_size=1))
        for name in ("here", "there")
    )
    assert here == there
    assert here.startswith("dataset ")


def test_other_tokens_of_the_same_size_are_another_dataset(tmp_path: Path) -> None:
    # Megabytes, so that only a share of them is read.
    manifest = {**GOOD, "num_tokens": 1_000_000}
    identities = set()
    for shift in range(3):
        tokens = struct.pack("<1000000I", *range(shift, shift + 1_000_000))
        identities.add(identity_of_folder(prepare(tmp_path, manifest, tokens)))
    assert len(identities) == 3


@pytest.mark.parametrize("at", [0, 3_999_999])
def test_the_first_and_the_last_byte_count(at: int, tmp_path: Path) -> None:
    manifest = {**GOOD, "num_tokens": 1_000_000}
    tokens = bytearray(4_000_000)
    before = identity_of_folder(prepare(tmp_path, manifest, bytes(tokens)))
    tokens[at] = 1
    assert identity_of_folder(prepare(tmp_path, manifest, bytes(tokens))) != before


def test_another_end_of_text_is_another_dataset(tmp_path: Path) -> None:
    tokens = struct.pack("<4I", 1, 2, 3, 0)
    before = identity_of_folder(prepare(tmp_path, GOOD, tokens))
    assert identity_of_folder(prepare(tmp_path, {**GOOD, "end_of_text": 3}, tokens)) != before


def test_a_truncated_dataset_has_no_identity(tmp_path: Path) -> None:
    prepare(tmp_path, GOOD, struct.pack("<3I", 1, 2, 3))
    with pytest.raises(DatasetError, match=r"has 12 bytes .* 16 bytes"):
        identity_of_folder(tmp_path)
