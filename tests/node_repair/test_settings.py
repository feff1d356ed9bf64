"""What the controller accepts, and what its image is made of."""

from pathlib import Path

import pytest

from node_repair.settings import read
from tests.node_repair.worlds import SETTINGS

ROOT = Path(__file__).resolve().parents[2]


def test_settings_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(SETTINGS.to_json())
    assert read(file) == SETTINGS


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('"max_at_once"', '"max_at_onc"', "max_at_once"),
        ('"act"', '"on"', "mode"),
        ('"max_per_hour": 3', '"max_per_hour": 0', "max_per_hour"),
        ("{", "", "file"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(old: str, new: str, named: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(SETTINGS.to_json().replace(old, new, 1))
    with pytest.raises(ValueError, match=f": {named}: ") as refused:
        read(file)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot read .*nothing\.json"):
        read(tmp_path / "nothing.json")


def test_the_image_holds_the_versions_that_are_tested_here() -> None:
    image = _pins("node_repair/requirements.txt")
    assert image.keys() == {"boto3", "kubernetes", "pydantic"}
    assert image.items() <= _pins("requirements.txt").items()


def test_the_image_can_be_built_from_what_docker_is_sent() -> None:
    """No Docker here: each path that the Dockerfile copies exists and is not ignored."""
    lines = (ROOT / "node_repair/Dockerfile").read_text().splitlines()
    copied = [line.split()[1] for line in lines if line.startswith("COPY ")]
    assert copied == ["node_repair/requirements.txt", "node_repair"]
    assert all((ROOT / path).exists() for path in copied)
    assert "!node_repair" in (ROOT / ".dockerignore").read_text().splitlines()


def _pins(file: str) -> dict[str, str]:
    lines = (ROOT / file).read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))
