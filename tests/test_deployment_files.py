"""Whatever a deployment file holds is loaded or refused in words; nothing causes a traceback."""

import copy
import string
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deployment import DeploymentError, load

P5: dict[str, Any] = yaml.safe_load((Path(__file__).parents[1] / "deployments/p5.yaml").read_text())


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "must hold a mapping"),
        (b"- a\n- b\n", "must hold a mapping"),
        (b"name: [1, 2\n", "not YAML"),
        (b"name: !!python/object:os.system {}\n", "not YAML"),
        (b"name: \xff\xfe\n", "not YAML"),
        (b"name: 2024-99-99\n", "not YAML"),
        (b"? [1, 2]\n: 3\n", "not YAML"),
        (b"a: &a [*a]\n", "unknown setting 'a'"),
        (b"[" * 5000, "not YAML"),
        (b"name: \x00\n", "not YAML"),
    ],
)
def test_a_file_that_holds_no_settings_is_refused_by_name(
    content: bytes, expected: str, tmp_path: Path
) -> None:
    path = tmp_path / "strange.yaml"
    path.write_bytes(content)
    with pytest.raises(DeploymentError) as caught:
        load(path)
    assert expected in str(caught.value)
    assert all(line.startswith(f"{path}: ") for line in str(caught.value).splitlines())


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("name: a\nregion: b\nname: c\n", "line 3: key 'name' stands in line 1 already"),
        ("runs:\n  pod: {num_nodes: 1}\n  'pod': {}\n", "line 3: key 'pod' stands in line 2"),
        ("a: {b: 1, b: 2}\n", "line 1: key 'b' stands in line 1 already; remove one of the two"),
        ("a:\n  <<: {b: 1, b: 2}\n", "line 2: key 'b' stands in line 2"),
    ],
)
def test_a_key_written_twice_is_refused_with_both_lines(
    content: str, expected: str, tmp_path: Path
) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text(content)
    with pytest.raises(DeploymentError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: {expected}")


def test_a_merged_key_may_be_overridden(tmp_path: Path) -> None:
    values = yaml.safe_dump({key: value for key, value in P5.items() if key != "runs"})
    path = tmp_path / "merged.yaml"
    path.write_text(
        f"{values}runs:\n"
        "  two: &two {num_nodes: 2, id: a}\n"
        "  one: &one {<<: *two, num_nodes: 1}\n"
        "  other: {id: b, <<: *one}\n"
    )
    runs = load(path).runs
    assert [(run.num_nodes, run.id) for run in runs.values()] == [(2, "a"), (1, "a"), (1, "b")]


def test_a_folder_is_not_a_deployment(tmp_path: Path) -> None:
    with pytest.raises(DeploymentError, match=r"cannot be read \(Is a directory\)"):
        load(tmp_path)


def _places(values: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = values.items() if isinstance(values, dict) else ()
    return [path, *(place for key, value in inner for place in _places(value, (*path, key)))]


PLACES = [place for place in _places(P5) if place]
STRANGE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(string.printable, max_size=8)
    | st.dates()
    | st.binary(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["checkpoint.mode", "faults.count", "recovery", "a.b", "", "."])
            | st.integers()
            | st.dates()
            | st.text(string.printable, max_size=4),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(place=st.sampled_from(PLACES), strange=STRANGE)
def test_whatever_stands_in_a_file_is_loaded_or_refused(
    place: tuple[Any, ...], strange: Any, tmp_path: Path
) -> None:
    values = copy.deepcopy(P5)
    inner = values
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = strange
    path = tmp_path / "strange.yaml"
    path.write_text(yaml.safe_dump(values))
    with suppress(DeploymentError):
        load(path)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(content=st.binary(max_size=60))
def test_whatever_bytes_a_file_holds_it_is_refused_in_words(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bytes.yaml"
    path.write_bytes(content)
    with pytest.raises(DeploymentError, match=r"bytes\.yaml"):
        load(path)
